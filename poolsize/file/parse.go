package file

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/quotient-go/quotient"
)

// parse reads a whole number or a JSON object, whole or not at all.
func parse(content string) (quotient.Pool, error) {
	content = strings.Trim(content, " \t\r\n")
	if content == "" {
		return quotient.Pool{}, errors.New("it is empty")
	}
	var p quotient.Pool
	var err error
	if content[0] == '{' {
		p, err = object(content)
	} else {
		p.Replicas, err = whole("the content", content)
	}
	if err == nil {
		err = check(p)
	}
	if err != nil {
		return quotient.Pool{}, err
	}
	return p, nil
}

// mostReplicas is what a quotient.Limiter takes at most.
const mostReplicas = 1_000_000

// check reports the first field that a Limiter would refuse.
func check(p quotient.Pool) error {
	if p.Replicas < 1 || p.Replicas > mostReplicas {
		return fmt.Errorf("Pool.Replicas: %d is not between 1 and %d", p.Replicas, mostReplicas)
	}
	if p.Weight < 0 || p.Weight > p.Replicas {
		return fmt.Errorf("Pool.Weight: %d is not between 1 and the %d replicas", p.Weight, p.Replicas)
	}
	if most := p.Replicas - max(1, p.Weight) + 1; p.Ordinal < 0 || p.Ordinal > most {
		return fmt.Errorf("Pool.Ordinal: %d is not between 0 and %d, with weight %d of the %d replicas",
			p.Ordinal, most, max(1, p.Weight), p.Replicas)
	}
	return nil
}

func object(content string) (p quotient.Pool, err error) {
	fields, err := split(content)
	if err != nil {
		return p, err
	}
	for name, value := range fields {
		switch name {
		case "replicas":
			p.Replicas, err = whole(name, value)
		case "ordinal":
			p.Ordinal, err = whole(name, value)
		case "weight":
			if p.Weight, err = whole(name, value); err == nil && p.Weight == 0 {
				err = errors.New("weight: 0 is below 1")
			}
		case "fixed":
			if p.Fixed = value == "true"; !p.Fixed && value != "false" {
				err = fmt.Errorf("fixed: %q is neither true nor false", clip(value))
			}
		default:
			err = fmt.Errorf("%q is no field: replicas, ordinal, weight and fixed are", clip(name))
		}
		if err != nil {
			return p, err
		}
	}
	if _, ok := fields["replicas"]; !ok {
		return p, errors.New("replicas is missing")
	}
	if p.Fixed && p.Ordinal == 0 {
		return p, errors.New("fixed: true without an ordinal")
	}
	return p, nil
}

// split reads one JSON object whose names differ, and nothing after it. encoding/json by itself takes
// the last of two fields of one name, and names in any case.
func split(content string) (map[string]string, error) {
	dec := json.NewDecoder(strings.NewReader(content))
	if _, err := dec.Token(); err != nil {
		return nil, noJSON(err)
	}
	fields := map[string]string{}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return nil, noJSON(err)
		}
		name, _ := token.(string) // Token lets nothing else stand there
		if _, twice := fields[name]; twice {
			return nil, fmt.Errorf("%q comes twice", clip(name))
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, noJSON(err)
		}
		fields[name] = string(value)
	}
	if _, err := dec.Token(); err != nil {
		return nil, noJSON(err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("something follows the JSON object")
	}
	return fields, nil
}

func noJSON(err error) error {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("it is no JSON object: %w", err)
}

// whole reads a number as strconv.Itoa writes it.
func whole(what, value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || strconv.Itoa(n) != value {
		return 0, fmt.Errorf("%s: %q is no whole number", what, clip(value))
	}
	return n, nil
}

// maxQuoted is how much of a value an error repeats, in bytes.
const maxQuoted = 40

func clip(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	return strings.ToValidUTF8(s[:maxQuoted], "") + "…"
}
