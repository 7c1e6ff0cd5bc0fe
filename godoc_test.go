package transfer

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// Every error has its place in docs/errors.md, and so has every code of a failure.
func TestErrorsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/errors.md")
	require.NoError(t, err)
	for _, name := range sentinels(t) {
		require.Contains(t, string(page), "`"+name+"`", "what does a caller do about it?")
	}
	codes := []string{document.RepairedCode}
	for reason := protocol.NotFound; reason <= protocol.Expired; reason++ {
		codes = append(codes, reason.String())
	}
	for _, code := range codes {
		rec := Record{State: StateFail, Failure: &Failure{Code: code}}
		found := false
		for line := range strings.Lines(string(page)) {
			cells := strings.Split(line, "|")
			if len(cells) == 5 && strings.Contains(cells[2], "`"+code+"`") {
				found = true
				require.ErrorIs(t, failureError(rec), sentinelOutcomes()[strings.Trim(cells[1], " `")].err, line)
			}
		}
		require.True(t, found, "when does a new ID help after %s?", code)
	}
}

// Every verb lists what it returns, or names the verb that does.
// All errors that are named exist.
func TestVerbsListWhatTheyReturn(t *testing.T) {
	t.Parallel()
	list := regexp.MustCompile(`(?m)^ +- (nil|an? |the |The |Err[A-Z])`)
	reference := regexp.MustCompile(`see\s+\[Coordinator\.\w+\]`)
	named := regexp.MustCompile(`\b(?:mongo\.)?Err[A-Z]\w+`)
	known := append(sentinels(t), "mongo.ErrClientDisconnected")
	verbs := 0
	for name, doc := range verbDocs(t) {
		verbs++
		require.True(t, list.MatchString(doc) || strings.HasPrefix(name, "Ledger.") && reference.MatchString(doc),
			"%s: what does it return, and what does the caller do then?\n%s", name, doc)
		for _, word := range named.FindAllString(doc, -1) {
			require.Contains(t, known, word, name)
		}
	}
	require.Greater(t, verbs, 30)
}

// verbDocs returns what is written above each exported method of Coordinator and Ledger
// that takes a context, by its name.
func verbDocs(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	docs := map[string]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, declaration := range parsed.Decls {
			verb, ok := declaration.(*ast.FuncDecl)
			if !ok || verb.Recv == nil || !verb.Name.IsExported() || len(verb.Type.Params.List) == 0 {
				continue
			}
			pointer, ok := verb.Recv.List[0].Type.(*ast.StarExpr)
			if !ok || verb.Type.Params.List[0].Names[0].Name != "ctx" {
				continue
			}
			if of := pointer.X.(*ast.Ident).Name; of == "Coordinator" || of == "Ledger" {
				docs[of+"."+verb.Name.Name] = verb.Doc.Text()
			}
		}
	}
	return docs
}
