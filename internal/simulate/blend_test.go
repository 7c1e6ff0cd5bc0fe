package simulate_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// chooser is the environment variable with the number of the mutant that a blend runs.
// The original has the number zero.
const chooser = "MUTANT_IN_FORCE"

// blend is the sources of one program that holds many mutants, because linking a program
// takes longer than hunting a mutant.
// A function that mutants change has all their bodies, and its own, in one switch.
// So each mutant has exactly its few changed lines, as if it were built alone.
type blend struct {
	files  map[string]*blended // by their names in internal
	mutant map[int]bool        // the numbers of its mutants
}

// blended is a file of a blend.
type blended struct {
	source
	bodies  map[int][]body  // of the functions that change, by their positions in the file
	imports map[string]bool // what mutants import besides the original's imports
}

// body is the body of a function in a mutant.
type body struct {
	number int
	rule   string
	text   string
}

// source is a parsed file.
type source struct {
	text      string
	name      int             // where the package's name ends
	functions []*ast.FuncDecl // those with bodies
	imports   map[string]bool
	frame     string // everything but the bodies and the imports
}

// blendOf returns a blend of these mutants, which are numbered from one.
// It leaves out those that change more than bodies, which must be built alone.
func blendOf(t *testing.T, mutants []mutant) blend {
	t.Helper()
	b := blend{files: map[string]*blended{}, mutant: map[int]bool{}}
	for i, m := range mutants {
		b.add(t, i+1, m)
	}
	return b
}

func (b blend) add(t *testing.T, number int, m mutant) {
	t.Helper()
	changed := map[string]source{}
	for file, text := range m.sources(t) {
		if b.files[file] == nil {
			b.files[file] = &blended{source: parse(t, file, original(t, file)), bodies: map[int][]body{}, imports: map[string]bool{}}
		}
		changed[file] = parse(t, file, text)
		if !b.files[file].holds(changed[file]) {
			return
		}
	}
	for file, with := range changed {
		into := b.files[file]
		for i, function := range into.functions {
			if text := with.body(with.functions[i]); text != into.body(function) {
				into.bodies[i] = append(into.bodies[i], body{number, m.rule, text})
				b.mutant[number] = true
			}
		}
		maps.Copy(into.imports, with.imports)
	}
	require.True(t, b.mutant[number], "%s: it changes nothing", m.rule)
}

func parse(t *testing.T, file, text string) source {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
	require.NoError(t, err)
	s := source{text: text, name: int(parsed.Name.End()) - 1, imports: map[string]bool{}}
	for _, imported := range parsed.Imports {
		s.imports[imported.Path.Value] = true
	}
	var frame strings.Builder
	from := s.name
	for _, declared := range parsed.Decls {
		switch d := declared.(type) {
		case *ast.GenDecl:
			if d.Tok == token.IMPORT {
				from = int(d.End()) - 1
			}
		case *ast.FuncDecl:
			frame.WriteString(text[from : d.Body.Lbrace-1])
			from = int(d.Body.End()) - 1
			s.functions = append(s.functions, d)
		}
	}
	frame.WriteString(text[from:])
	s.frame = strings.Join(strings.Fields(frame.String()), " ")
	return s
}

// body returns the text between the braces of a function.
func (s source) body(function *ast.FuncDecl) string {
	return s.text[function.Body.Lbrace : function.Body.Rbrace-1]
}

// holds reports whether a mutant's file differs from the original only in bodies that a
// switch can hold.
// A label would occur twice there, and a named result might be declared again.
func (f *blended) holds(with source) bool {
	if with.frame != f.frame || len(with.functions) != len(f.functions) {
		return false
	}
	for i, function := range f.functions {
		if with.body(with.functions[i]) != f.body(function) && !switchable(function) {
			return false
		}
	}
	return true
}

func switchable(function *ast.FuncDecl) bool {
	able := true
	if results := function.Type.Results; results != nil {
		able = !slices.ContainsFunc(results.List, func(f *ast.Field) bool { return len(f.Names) > 0 })
	}
	ast.Inspect(function.Body, func(n ast.Node) bool {
		_, labeled := n.(*ast.LabeledStmt)
		able = able && !labeled
		return able
	})
	return able
}

// texts returns the files of the blend, by their names in internal.
func (b blend) texts() map[string]string {
	texts := map[string]string{}
	for file, f := range b.files {
		texts[file] = f.blend()
		folder := path.Dir(file)
		texts[folder+"/mutant_in_force.go"] = fmt.Sprintf(`package %s
import ("os"; "strconv")
var mutantInForce, _ = strconv.Atoi(os.Getenv(%q))
`, path.Base(folder), chooser)
	}
	return texts
}

// blend returns the text of the file with all bodies.
// The compiler's errors about a mutant's body name the mutant.
func (f *blended) blend() string {
	var out strings.Builder
	out.WriteString(f.text[:f.name] + "\n")
	for _, imported := range slices.Sorted(maps.Keys(f.imports)) {
		if !f.source.imports[imported] {
			out.WriteString("import " + imported + "\n")
		}
	}
	from := f.name
	for i, function := range f.functions {
		if len(f.bodies[i]) == 0 {
			continue
		}
		out.WriteString(f.text[from:function.Body.Lbrace] + "\nswitch mutantInForce {\n")
		for _, b := range f.bodies[i] {
			fmt.Fprintf(&out, "case %d:\n//line the mutant, %s:1\n%s\n", b.number, b.rule, b.text)
		}
		out.WriteString("default:\n//line the original:1\n" + f.body(function) + "\n}\n")
		from = int(function.Body.Rbrace) - 1
	}
	out.WriteString(f.text[from:])
	return out.String()
}
