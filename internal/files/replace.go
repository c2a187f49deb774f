package files

import (
	"errors"
	"os"
	"path/filepath"
)

// Replace gives a file another text, for its owner alone. After a crash it has all of the old text or all of the new
// one, and what Replace returned nil for is on the disk. Beside it stands path.new meanwhile, so only the holder of the
// path's Lock may replace it.
func Replace(path string, text []byte) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncFolder(filepath.Dir(path))
}
