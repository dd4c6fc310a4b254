//! Problems found while loading, each with its place and a way out.

use std::collections::HashSet;

use crate::model::{Masker, Span};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Error,
    Warning,
}

/// One problem: what is wrong, where, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    pub severity: Severity,
    pub message: String,
    pub span: Option<Span>,
    /// Shown under the marked source, when it can say more than the message.
    pub label: Option<String>,
    pub help: Option<String>,
    /// Other places that matter, such as the first of two duplicate keys.
    pub related: Vec<(Span, String)>,
}

impl Diagnostic {
    pub fn error(span: impl Into<Option<Span>>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            message: message.into(),
            span: span.into(),
            label: None,
            help: None,
            related: Vec::new(),
        }
    }

    pub fn warning(span: impl Into<Option<Span>>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(span, message) }
    }

    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    pub fn maybe_help(mut self, help: Option<String>) -> Self {
        self.help = help.or(self.help);
        self
    }

    pub fn related(mut self, span: Span, note: impl Into<String>) -> Self {
        self.related.push((span, note.into()));
        self
    }
}

/// The problems found so far.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
    /// Messages by place, so that a file with very many problems is not searched for each of them.
    seen: HashSet<(Option<Span>, String)>,
}

impl Diagnostics {
    pub fn push(&mut self, diagnostic: Diagnostic) {
        // The same file can be reached by two roads; say each thing once.
        if self.seen.insert((diagnostic.span, diagnostic.message.clone())) {
            self.list.push(diagnostic);
        }
    }

    pub fn error(&mut self, span: impl Into<Option<Span>>, message: impl Into<String>) {
        self.push(Diagnostic::error(span, message));
    }

    pub fn has_errors(&self) -> bool {
        self.list.iter().any(|d| d.severity == Severity::Error)
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.list.iter()
    }

    pub fn extend(&mut self, other: Diagnostics) {
        other.list.into_iter().for_each(|d| self.push(d));
    }

    /// Without secrets in any of the texts.
    pub fn masked(&self, masker: &Masker) -> Self {
        let mut masked = Self::default();
        for problem in self.iter() {
            let mask = |text: &String| masker.mask(text).into_owned();
            masked.push(Diagnostic {
                severity: problem.severity,
                message: mask(&problem.message),
                span: problem.span,
                label: problem.label.as_ref().map(mask),
                help: problem.help.as_ref().map(mask),
                related: problem.related.iter().map(|(span, note)| (*span, mask(note))).collect(),
            });
        }
        masked
    }

    /// In the order of the files, so that a person can mend them from top to bottom.
    pub fn sort(&mut self) {
        self.list.sort_by_key(|d| (d.span.map(|s| (s.file, s.start)), d.message.clone()));
    }
}
