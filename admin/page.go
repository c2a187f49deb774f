package admin

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"sync"
	"time"
)

//go:embed assets
var assets embed.FS

// pageFile is one file of the operator's page.
type pageFile struct {
	contentType, etag string
	body              []byte
}

// contentTypes are those of the page's files, by extension. The system's table of types may say anything.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// pagePolicy lets the page load its own scripts, styles and pictures and talk to its own origin. Nothing
// inline runs, no text can become markup (trusted types), no other page frames it, no form leaves it.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// pageFiles returns the files of the page by the path under which they are served.
var pageFiles = sync.OnceValue(func() map[string]pageFile {
	files := make(map[string]pageFile)
	names, err := fs.Glob(assets, "assets/*")
	if err != nil {
		panic(err) // a bad pattern: a mistake of ours that every test meets
	}
	for _, name := range names {
		body, err := assets.ReadFile(name)
		if err != nil {
			panic(err) // it stands in the program itself
		}
		sum := sha256.Sum256(body)
		files["/"+name] = pageFile{contentTypes[path.Ext(name)], `"` + hex.EncodeToString(sum[:12]) + `"`, body}
	}
	files["/"] = files["/assets/index.html"]
	delete(files, "/assets/index.html") // its links are relative to the root
	return files
})

// page serves the operator's page and its assets. They hold no secret, so a browser gets them without a
// token; the page then asks for one.
func (h *handler) page(w http.ResponseWriter, r *http.Request) {
	file, found := pageFiles()[r.URL.Path]
	if !found {
		notFound(w, r)
		return
	}
	header := w.Header()
	header.Set("Content-Type", file.contentType)
	header.Set("ETag", file.etag)
	header.Set("Cache-Control", "no-cache")
	header.Set("Content-Security-Policy", pagePolicy)
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(file.body))
}
