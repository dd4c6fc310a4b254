//! Source: YAML text becomes spanned, tagged nodes; problems become diagnostics.
