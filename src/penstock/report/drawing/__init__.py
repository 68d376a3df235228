"""Drawing helpers: bars, sparklines, tables, chart files and JSON values."""
