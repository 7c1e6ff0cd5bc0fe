package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
)

// page is a Markdown file, with the targets of its links and its own anchors.
type page struct {
	links   []string
	anchors map[string]bool
}

// readPage reads the Markdown file at path.
func readPage(path string) (page, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return page{}, err
	}
	return parsePage(string(content)), nil
}

// parsePage finds links and headings. It skips blocks and spans of code.
func parsePage(text string) page {
	link := regexp.MustCompile(`\]\(([^()\s]+)\)|^\[[^\]]+\]: (\S+)`)
	span := regexp.MustCompile("`[^`]*`")
	p := page{anchors: map[string]bool{}}
	fenced := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if fenced || strings.HasPrefix(line, "    ") {
			continue
		}
		if heading := strings.TrimLeft(line, "#"); heading != line && strings.HasPrefix(heading, " ") {
			p.addAnchor(strings.TrimSpace(heading))
		}
		for _, found := range link.FindAllStringSubmatch(span.ReplaceAllString(line, "code"), -1) {
			p.links = append(p.links, found[1]+found[2])
		}
	}
	return p
}

// addAnchor adds the anchor that GitHub makes of a heading.
// The second anchor of the same name ends with -1.
func (p *page) addAnchor(heading string) {
	anchor := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
	unique := anchor
	for n := 1; p.anchors[unique]; n++ {
		unique = fmt.Sprintf("%s-%d", anchor, n)
	}
	p.anchors[unique] = true
}

// target returns the file and the anchor that a link in the file from leads to.
// It reports false if the link leaves the repository.
func target(root, from, link string) (file, anchor string, inside bool) {
	const here = "https://github.com/mongotransfer/transfer/blob/main/"
	link, anchor, _ = strings.Cut(link, "#")
	switch {
	case strings.HasPrefix(link, here):
		return filepath.Join(root, strings.TrimPrefix(link, here)), anchor, true
	case strings.Contains(link, "://"):
		return "", "", false
	case link == "":
		return from, anchor, true
	}
	return filepath.Join(filepath.Dir(from), link), anchor, true
}

// brokenLinks returns the links of a file that lead to a missing file or heading.
func brokenLinks(root, path string) (broken []string, err error) {
	p, err := readPage(path)
	if err != nil {
		return nil, err
	}
	for _, link := range p.links {
		file, anchor, inside := target(root, path, link)
		if !inside {
			continue
		}
		if _, err := os.Stat(file); err != nil {
			broken = append(broken, link)
			continue
		}
		if anchor == "" {
			continue
		}
		other, err := readPage(file)
		if err != nil {
			return nil, err
		}
		if !other.anchors[anchor] {
			broken = append(broken, link)
		}
	}
	return broken, nil
}
