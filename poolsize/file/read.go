package file

import (
	"context"
	"io/fs"
	"os"

	"github.com/quotient-go/quotient/internal/files"
)

// maxSize is the largest file that is read, in bytes. A pool needs about forty.
const maxSize = 4 << 10

// snapshot is a file as it was read.
type snapshot struct {
	info    fs.FileInfo
	content string
}

// same reports whether two reads have seen one file, without a write in between.
func (s snapshot) same(o snapshot) bool {
	return s.info != nil && o.info != nil && os.SameFile(s.info, o.info) &&
		s.info.ModTime().Equal(o.info.ModTime()) && s.content == o.content
}

func read(ctx context.Context, path string) (snapshot, error) {
	text, info, err := files.Read(ctx, path, maxSize)
	return snapshot{info, string(text)}, err
}
