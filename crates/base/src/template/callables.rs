//! Which filters, tests, functions and methods there are, and which are left out on purpose.

use std::fmt;

use super::analysis::Analysis;
use crate::source::did_you_mean;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    Filter,
    Test,
    Function,
    Method,
}

impl fmt::Display for CallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Filter => "filter",
            Self::Test => "test",
            Self::Function => "function",
            Self::Method => "method",
        })
    }
}

/// A filter, test, function or method that a template calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallUse {
    pub kind: CallKind,
    pub name: String,
    pub offset: usize,
    pub len: usize,
}

/// A call of something that does not exist, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownCall {
    pub call: CallUse,
    pub message: String,
    pub help: Option<String>,
}

/// The calls in a template that would fail however it is rendered.
pub fn unknown_callables(analysis: &Analysis) -> Vec<UnknownCall> {
    let calls = analysis.calls.iter().filter(|call| !is_known(call.kind, &call.name));
    calls
        .map(|call| {
            let unknown = if refused(call.kind, plain_name(&call.name)).is_some() { "there is no" } else { "unknown" };
            UnknownCall {
                call: call.clone(),
                message: format!("{unknown} {} `{}`", call.kind, call.name),
                help: near(call.kind, &call.name),
            }
        })
        .collect()
}

fn is_known(kind: CallKind, name: &str) -> bool {
    let name = plain_name(name);
    refused(kind, name).is_none() && known(kind).contains(&name)
}

/// Ansible's full names: `ansible.builtin.to_json` is `to_json`.
pub(super) fn plain_name(name: &str) -> &str {
    COLLECTIONS.iter().find_map(|collection| name.strip_prefix(collection)).unwrap_or(name)
}

pub(super) const COLLECTIONS: &[&str] = &["ansible.builtin.", "ansible.utils."];

/// What to call instead.
pub(super) fn near(kind: CallKind, name: &str) -> Option<String> {
    let name = plain_name(name);
    if let Some(reason) = refused(kind, name) {
        return Some(reason.to_owned());
    }
    did_you_mean(name, known(kind).iter().copied())
}

pub(super) fn known(kind: CallKind) -> &'static [&'static str] {
    match kind {
        CallKind::Filter => FILTERS,
        CallKind::Test => TESTS,
        CallKind::Function => FUNCTIONS,
        CallKind::Method => METHODS,
    }
}

/// Names that every template sees.
pub(super) fn is_global(name: &str) -> bool {
    name == "omit" || FUNCTIONS.contains(&name)
}

fn refused(kind: CallKind, name: &str) -> Option<&'static str> {
    const PURE: &str = "templates have no clock and no randomness, so that the same input gives the same result";
    const FILES: &str = "templates read nothing: load files with `vars_files`, pass values with `-e`";
    Some(match (kind, name) {
        (CallKind::Function, "now") | (CallKind::Filter, "random" | "shuffle" | "strftime" | "password_hash") => PURE,
        (CallKind::Function, "lookup" | "query" | "q") => FILES,
        (CallKind::Filter, "expanduser" | "realpath" | "fileglob" | "expandvars") => FILES,
        _ => return None,
    })
}

#[rustfmt::skip]
const FILTERS: &[&str] = &[
    "abs", "attr", "b64decode", "b64encode", "basename", "batch", "bool", "capitalize", "center", "checksum",
    "combine", "comment", "count", "d", "default", "dict2items", "dictsort", "difference", "dirname", "escape", "e",
    "extract", "first", "flatten", "float", "format", "from_json", "from_yaml", "groupby", "hash",
    "human_readable", "human_to_bytes", "indent", "int", "intersect", "ipaddr", "ipmath", "ipsubnet", "ipv4", "ipv6",
    "ipwrap", "items", "items2dict", "join", "last", "length", "lines", "list", "lower", "mandatory", "map", "max",
    "min", "network_in_network", "network_in_usable", "nthhost", "pprint", "product", "quote", "regex_escape",
    "regex_findall", "regex_replace", "regex_search", "reject", "rejectattr", "replace", "reverse", "round",
    "select", "selectattr", "slice", "sort", "split", "splitext", "string", "subelements", "sum",
    "symmetric_difference", "ternary", "title", "to_json", "to_nice_json", "to_nice_yaml", "to_yaml", "tojson",
    "trim", "type_debug", "union", "unique", "upper", "urlencode", "urlsplit", "wordwrap", "zip", "zip_longest",
    "path_join", "chain", "safe",
];

#[rustfmt::skip]
const TESTS: &[&str] = &[
    "all", "any", "boolean", "changed", "contains", "defined", "divisibleby", "endingwith", "eq", "equalto", "even",
    "failed", "failure", "false", "falsy", "filter", "float", "ge", "greaterthan", "gt", "in", "integer", "int",
    "in_network", "ip", "ipv4", "ipv6", "iterable", "le", "lessthan", "lower", "lt", "mapping", "match", "ne",
    "none", "number", "odd", "regex", "safe", "sameas", "search", "sequence", "skip", "skipped", "startingwith",
    "string", "subset", "succeeded", "success", "superset", "test", "true", "truthy", "undefined", "upper",
    "version", "version_compare", "==", "!=", "<", "<=", ">", ">=",
];

const FUNCTIONS: &[&str] = &["dict", "namespace", "range", "undef"];

#[rustfmt::skip]
const METHODS: &[&str] = &[
    "capitalize", "count", "endswith", "find", "format", "get", "index", "isalnum", "isalpha", "isdigit", "islower",
    "isupper", "items", "join", "keys", "lower", "lstrip", "removeprefix", "removesuffix", "replace", "rsplit",
    "rstrip", "split", "splitlines", "startswith", "strip", "title", "upper", "values", "zfill",
];
