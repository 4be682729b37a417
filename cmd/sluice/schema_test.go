package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/control"
)

// schemaNode is the part of JSON Schema (draft 2020-12) that is made use of.
type schemaNode struct {
	Schema      string                 `json:"$schema,omitempty"`
	ID          string                 `json:"$id,omitempty"`
	Title       string                 `json:"title,omitempty"`
	Description string                 `json:"description,omitempty"`
	Ref         string                 `json:"$ref,omitempty"`
	Type        string                 `json:"type,omitempty"`
	Format      string                 `json:"format,omitempty"`
	Enum        []string               `json:"enum,omitempty"`
	Properties  properties             `json:"properties,omitempty"`
	Required    []string               `json:"required,omitempty"`
	Items       *schemaNode            `json:"items,omitempty"`
	Values      *schemaNode            `json:"additionalProperties,omitempty"`
	Defs        map[string]*schemaNode `json:"$defs,omitempty"`
}

// properties keep their order.
type properties []named

type named struct {
	name string
	node *schemaNode
}

func (p properties) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	for i, n := range p {
		sep := ","
		if i == 0 {
			sep = "{"
		}
		v, err := json.Marshal(n.node)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%s%q:%s", sep, n.name, v)
	}
	b.WriteString("}")
	return b.Bytes(), nil
}

func (p *properties) UnmarshalJSON(b []byte) error {
	var all map[string]*schemaNode
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	for name, node := range all {
		*p = append(*p, named{name, node})
	}
	return nil
}

func (p properties) get(name string) *schemaNode {
	for _, n := range p {
		if n.name == name {
			return n.node
		}
	}
	return nil
}

// schema makes a document's. A line or an element of an array is what is described.
func (s *source) schema(d *jsonDocument) *schemaNode {
	defs := map[string]*schemaNode{}
	t := reflect.TypeOf(d.value)
	top := s.object(t, defs)
	if d.form == list {
		defs[t.Name()] = top
		top = &schemaNode{Type: "array", Items: &schemaNode{Ref: "#/$defs/" + t.Name()}}
	}
	top.Schema = "https://json-schema.org/draft/2020-12/schema"
	top.ID = "https://github.com/sluice-lb/sluice/docs/schema/" + control.Schema + "/" + d.name + ".json"
	top.Title = d.verbs
	top.Description = "What it prints with --json: " + string(d.form) + "."
	if d.listener {
		top.Description = "What http_listen answers as JSON: " + string(d.form) + "."
	}
	if d.form == lines {
		top.Description += " This is one of them."
	}
	top.Defs = defs
	return top
}

func (s *source) object(t reflect.Type, defs map[string]*schemaNode) *schemaNode {
	o := &schemaNode{Type: "object", Description: s.types[shortName(t)], Properties: properties{}}
	for _, p := range s.properties(t) {
		n := s.node(p.kind, p.elem, defs)
		switch p.kind {
		case "array":
			n.Items = s.node(p.elements, p.elem, defs)
		case "map":
			n.Type, n.Values = "object", s.node(p.elements, p.elem, defs)
		}
		n.Description, n.Enum = p.meaning, p.values
		if p.of == timeType {
			n.Format = "date-time"
		}
		if p.unit == "ns" {
			n.Description = strings.TrimSpace(n.Description + " In nanoseconds.")
		}
		o.Properties = append(o.Properties, named{p.name, n})
		if p.absent == "" {
			o.Required = append(o.Required, p.name)
		}
	}
	return o
}

func (s *source) node(kind string, elem reflect.Type, defs map[string]*schemaNode) *schemaNode {
	if kind != "object" {
		return &schemaNode{Type: kind}
	}
	name := elem.Name()
	if defs[name] == nil {
		defs[name] = &schemaNode{} // against going round
		*defs[name] = *s.object(elem, defs)
	}
	return &schemaNode{Ref: "#/$defs/" + name}
}

// valid holds a value to a schema, and tells of fields that the schema does not have as
// well: for a test those are wrong, for other programs they are a newer release's.
func (n *schemaNode) valid(root *schemaNode, at string, v any) error {
	if n.Ref != "" {
		name, _ := strings.CutPrefix(n.Ref, "#/$defs/")
		if root.Defs[name] == nil {
			return fmt.Errorf("%s: the schema has no %s", at, n.Ref)
		}
		return root.Defs[name].valid(root, at, v)
	}
	wrong := fmt.Errorf("%s: %v (%T) is no %s", at, v, v, n.Type)
	switch v := v.(type) {
	case string:
		if n.Type != "string" {
			return wrong
		}
		if n.Enum != nil && !slices.Contains(n.Enum, v) {
			return fmt.Errorf("%s: %q is not among %q", at, v, n.Enum)
		}
		if n.Format == "date-time" {
			if _, err := time.Parse(time.RFC3339Nano, v); err != nil {
				return fmt.Errorf("%s: %w", at, err)
			}
		}
	case json.Number:
		if _, err := v.Int64(); n.Type != "number" && (n.Type != "integer" || err != nil) {
			return wrong
		}
	case bool:
		if n.Type != "boolean" {
			return wrong
		}
	case []any:
		if n.Type != "array" {
			return wrong
		}
		for i, e := range v {
			if err := n.Items.valid(root, fmt.Sprintf("%s[%d]", at, i), e); err != nil {
				return err
			}
		}
	case map[string]any:
		if n.Type != "object" {
			return wrong
		}
		for _, name := range n.Required {
			if _, ok := v[name]; !ok {
				return fmt.Errorf("%s has no %s", at, name)
			}
		}
		for name, e := range v {
			below := n.Properties.get(name)
			if below == nil {
				below = n.Values
			}
			if below == nil {
				return fmt.Errorf("%s.%s is not in the schema", at, name)
			}
			if err := below.valid(root, at+"."+name, e); err != nil {
				return err
			}
		}
	default:
		return wrong
	}
	return nil
}

// holds reads a schema's file and holds a verb's output to it. It returns how many values
// there were.
func holds(name, output string) (values int, err error) {
	b, err := os.ReadFile("../../docs/schema/v1/" + name + ".json")
	if err != nil {
		return 0, err
	}
	var root schemaNode
	if err := json.Unmarshal(b, &root); err != nil {
		return 0, err
	}
	dec := json.NewDecoder(strings.NewReader(output))
	dec.UseNumber()
	for dec.More() {
		var v any
		if err := dec.Decode(&v); err != nil {
			return values, err
		}
		if err := root.valid(&root, "$", v); err != nil {
			return values, err
		}
		values++
	}
	if values == 0 {
		return 0, errors.New("nothing was printed")
	}
	return values, nil
}

// TestJSONPage makes docs/json.md and the schemas of the types and their comments.
func TestJSONPage(t *testing.T) {
	s := readSource(t)
	for _, d := range jsonDocuments {
		s.walk(reflect.TypeOf(d.value), "", func(path string, p property) bool {
			if p.meaning == "" {
				t.Errorf("%s: nothing says what %s means; write a comment upon the field", d.name, path)
			}
			if p.of == durationType && !strings.HasSuffix(p.name, "_ns") {
				t.Errorf("%s: %s is a duration, and its name does not end in _ns", d.name, path)
			}
			return true
		})
		b, err := json.MarshalIndent(s.schema(&d), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		kept(t, "../../docs/schema/v1/"+d.name+".json", string(b)+"\n")
	}
	kept(t, "../../docs/json.md", s.page())
}

// TestJSONLosesNothing: what a release had of v1 is never taken away.
func TestJSONLosesNothing(t *testing.T) {
	const file = "testdata/json-v1.txt"
	now := readSource(t).paths()
	b, err := os.ReadFile(file)
	if err != nil && !*update {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); !slices.Contains(now, line) {
			t.Errorf("gone or another now: %s\n  programs rely on it: within v1 fields and values are only added", line)
		}
	}
	if !t.Failed() {
		kept(t, file, strings.Join(now, "\n")+"\n")
	}
}
