// A module of its own, so that users of the library build and select versions from nothing that only this program needs.
module github.com/mongotransfer/transfer/examples/demo

go 1.25.0

replace github.com/mongotransfer/transfer => ../..

require (
	github.com/mongotransfer/transfer v0.0.0-00010101000000-000000000000
	github.com/schollz/progressbar/v3 v3.19.1
	go.mongodb.org/mongo-driver/v2 v2.9.3
	golang.org/x/sync v0.21.0
	golang.org/x/term v0.44.0
)

require (
	github.com/klauspost/compress v1.19.2 // indirect
	github.com/mitchellh/colorstring v0.0.0-20190213212951-d06e56a500db // indirect
	github.com/rivo/uniseg v0.4.7 // indirect
	github.com/xdg-go/pbkdf2 v1.0.0 // indirect
	github.com/xdg-go/scram v1.2.0 // indirect
	github.com/xdg-go/stringprep v1.0.4 // indirect
	github.com/youmark/pkcs8 v0.0.0-20240726163527-a2c0da244d78 // indirect
	golang.org/x/crypto v0.53.0 // indirect
	golang.org/x/sys v0.46.0 // indirect
	golang.org/x/text v0.39.0 // indirect
)
