package syntax

import "github.com/sluice-lb/sluice/internal/config/diag"

// kind is one sort of finding: its stable code, and what follows from it.
type kind struct {
	code     string
	severity diag.Severity
	class    diag.Class
}

// The findings of the language. Codes below 100 are this package's; they are
// stable, and a retired one is not used again.
var (
	missingClose  = kind{"F001", diag.Fatal, diag.ClassConfig}
	cannotRead    = kind{"F002", diag.Fatal, diag.ClassNotFound}
	tooMuch       = kind{"F003", diag.Fatal, diag.ClassConfig}
	notText       = kind{"F004", diag.Fatal, diag.ClassConfig}
	tooDeep       = kind{"F005", diag.Fatal, diag.ClassConfig}
	strayClose    = kind{"E001", diag.Error, diag.ClassConfig}
	strayOpen     = kind{"E002", diag.Error, diag.ClassConfig}
	missingOpen   = kind{"E003", diag.Error, diag.ClassConfig}
	openQuote     = kind{"E004", diag.Error, diag.ClassConfig}
	nulByte       = kind{"E005", diag.Error, diag.ClassConfig}
	lineTooLong   = kind{"E006", diag.Error, diag.ClassConfig}
	undefined     = kind{"E007", diag.Error, diag.ClassConfig}
	definedLoop   = kind{"E008", diag.Error, diag.ClassConfig}
	badDefinition = kind{"E009", diag.Error, diag.ClassConfig}
	lateSign      = kind{"E010", diag.Error, diag.ClassConfig}
	badLoop       = kind{"E011", diag.Error, diag.ClassConfig}
	checkViolated = kind{"E012", diag.Error, diag.ClassSecurity}
	// keepalived prints a message about this and goes on; a test that answers
	// "fine" would be useless as a gate, hence the class.
	includeNothing = kind{"E013", diag.Error, diag.ClassNotFound}
	includeCycle   = kind{"E014", diag.Error, diag.ClassConfig}
	includeBare    = kind{"E015", diag.Error, diag.ClassConfig}
	badParameter   = kind{"E016", diag.Error, diag.ClassConfig}
	extUnbalanced  = kind{"E017", diag.Error, diag.ClassConfig}
	multiInside    = kind{"E018", diag.Error, diag.ClassConfig}
	badCheck       = kind{"E020", diag.Error, diag.ClassConfig}
	longLine       = kind{"W001", diag.Warning, diag.ClassConfig}
	gluedComment   = kind{"W002", diag.Warning, diag.ClassNone}
	includeSkipped = kind{"W003", diag.Warning, diag.ClassNone}
	keptReference  = kind{"W004", diag.Warning, diag.ClassNone}
	lostBackslash  = kind{"W005", diag.Warning, diag.ClassNone}
	severalMain    = kind{"W006", diag.Warning, diag.ClassConfig}
	blankInside    = kind{"W008", diag.Warning, diag.ClassNone}
	byteOrderMark  = kind{"W009", diag.Warning, diag.ClassNone}
	notReplaced    = kind{"W010", diag.Warning, diag.ClassNone}
	includeEmpty   = kind{"N001", diag.Notice, diag.ClassNone}
)
