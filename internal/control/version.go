package control

// Schema is the version of everything that is JSON: of what verbs print with --json,
// and of the control API, whose paths begin with it. docs/json.md says what it promises.
const Schema = "v1"

// Version is what sluice version --json prints.
type Version struct {
	// Version is the program's.
	Version string `json:"version"`
	// Schema is the version of the JSON that it writes and reads: "v1".
	Schema string `json:"schema"`
}
