package gossip

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/memberlist"

	"github.com/quotient-go/quotient/internal/files"
)

// mostKeys bounds a key file: each packet that no key decrypts is tried with all of them.
const mostKeys = 16

func readKeys(ctx context.Context, path string) ([][]byte, error) {
	text, _, err := files.Read(ctx, path, longestFile)
	if err != nil {
		return nil, fmt.Errorf("gossip: key file %w", err)
	}
	keys, err := parseKeys(string(text))
	if err != nil {
		return nil, fmt.Errorf("gossip: key file %s: %w", path, err)
	}
	return keys, nil
}

// parseKeys reads one to 16 different keys, one a line. Its errors do not repeat what might be a secret.
func parseKeys(content string) (keys [][]byte, err error) {
	err = eachLine(content, func(line string) error {
		key, err := base64.StdEncoding.Strict().DecodeString(line)
		switch {
		case err != nil:
			return errors.New("it is not base64")
		case len(key) != 16 && len(key) != 24 && len(key) != 32:
			return fmt.Errorf("a key of %d bytes, not of 16, 24 or 32", len(key))
		case slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, key) }):
			return errors.New("a key that stands there already")
		case len(keys) == mostKeys:
			return fmt.Errorf("there are more than %d keys", mostKeys)
		}
		keys = append(keys, key)
		return nil
	})
	if err == nil && len(keys) == 0 {
		err = errors.New("it holds no key")
	}
	if err != nil {
		return nil, err
	}
	return keys, nil
}

// install makes a ring hold exactly these keys, the first one to encrypt with. The ring lends its slice
// to those who decrypt, and RemoveKey moves what stands behind a key within it. So only the last key is
// removed, again and again, and what has gone by that comes back at once.
func install(ring *memberlist.Keyring, keys [][]byte) error {
	if err := errors.Join(ring.AddKey(keys[0]), ring.UseKey(keys[0])); err != nil {
		return err
	}
	for {
		held := ring.GetKeys()
		if len(held) <= len(keys) && slices.EqualFunc(held, keys[:len(held)], bytes.Equal) {
			break
		}
		if err := ring.RemoveKey(held[len(held)-1]); err != nil {
			return err
		}
	}
	for _, key := range keys[1:] {
		if err := ring.AddKey(key); err != nil {
			return err
		}
	}
	return nil
}
