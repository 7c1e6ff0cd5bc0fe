package mongotest

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// launcher runs the mongod beside it, with the libraries beside it, as the same process.
const launcher = `#!/bin/sh
here=${0%/*}
LD_LIBRARY_PATH=$here
export LD_LIBRARY_PATH
exec "$here/server" "$@"
`

// openSSL returns a Python package that contains an OpenSSL 1.1.
func openSSL() pythonPackage {
	return pythonPackage{
		name: "psycopg2-binary==2.9.5",
		sum:  "5cbc554ba47ecca8cd3396ddaca85e1ecfe3e48dd57dc5e415e59551affe568e",
	}
}

// makeRunnable makes a folder in which a mongod runs that was built for an older system.
// The folder holds the mongod, the libraries that it needs, and a launcher with the name
// mongod.
func makeRunnable(ctx context.Context, mongod, folder string) error {
	if err := askForNewerCurl(mongod); err != nil {
		return err
	}
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	if err := os.Rename(mongod, filepath.Join(folder, "server")); err != nil {
		return err
	}
	archive, err := download(ctx, folder, openSSL())
	if err != nil {
		return err
	}
	for _, library := range []string{"libssl", "libcrypto"} {
		if err := unpackLibrary(archive, library, folder); err != nil {
			return fmt.Errorf("unpack %s: %w", filepath.Base(archive), err)
		}
	}
	if err := os.Remove(archive); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "mongod"), []byte(launcher), 0o755)
}

// unpackLibrary writes a library of OpenSSL 1.1 into the folder.
// The file keeps the name that the other libraries of the archive use
// (libssl-3a880ada.so.1.1).
// A link gives it the name that all other programs use (libssl.so.1.1).
func unpackLibrary(archive, library, folder string) error {
	const version = ".so.1.1"
	isLibrary := func(name string) bool {
		return strings.HasPrefix(name, library+"-") && strings.HasSuffix(name, version)
	}
	file, err := unpack(archive, folder, isLibrary)
	if err != nil {
		return fmt.Errorf("%s: %w", library, err)
	}
	return os.Symlink(filepath.Base(file), filepath.Join(folder, library+version))
}

// askForNewerCurl makes a program that was linked with the libcurl of Debian 9 run with a
// later one.
// The functions and the library's name are the same, but Debian and Ubuntu have since
// renamed the version to CURL_OPENSSL_4.
// The new name is as long as the old one, so it and its hash replace the old ones in
// place.
func askForNewerCurl(program string) error {
	const before, after = "CURL_OPENSSL_3", "CURL_OPENSSL_4"
	parsed, err := elf.Open(program)
	if err != nil {
		return err
	}
	defer func() { _ = parsed.Close() }()
	names, versions := parsed.Section(".dynstr"), parsed.Section(".gnu.version_r")
	if names == nil || versions == nil {
		return errors.New("it says nothing of the libraries that it needs")
	}
	content, err := names.Data()
	if err != nil {
		return err
	}
	if !bytes.Contains(content, []byte(before)) {
		return nil
	}
	file, err := os.OpenFile(program, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(
		overwrite(file, names, []byte("\x00"+before+"\x00"), []byte("\x00"+after+"\x00")),
		overwrite(file, versions, symbolHash(before), symbolHash(after)),
		file.Close())
}

// overwrite replaces bytes that occur exactly once in a section.
func overwrite(file *os.File, section *elf.Section, before, after []byte) error {
	content, err := section.Data()
	if err != nil {
		return err
	}
	if n := bytes.Count(content, before); n != 1 {
		return fmt.Errorf("%q is %d times in %s, want once", before, n, section.Name)
	}
	_, err = file.WriteAt(after, int64(section.Offset)+int64(bytes.Index(content, before)))
	return err
}

// symbolHash returns the hash of a name as an ELF file for x86-64 stores it.
func symbolHash(name string) []byte {
	var hash uint32
	for _, c := range []byte(name) {
		hash = hash<<4 + uint32(c)
		high := hash & 0xf000_0000
		hash ^= high>>24 ^ high
	}
	return binary.LittleEndian.AppendUint32(nil, hash)
}
