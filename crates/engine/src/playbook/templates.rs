//! Templates and conditions that could never render are found while loading.

use super::loader::Loader;
use crate::{
    model::Span,
    source::{Diagnostic, Kind, Node},
    template::{Analysis, SyntaxError, is_in_braces, place_in, unknown_callables},
};

impl Loader<'_> {
    /// Checks every template in a tree.
    pub(super) fn check_templates(&mut self, node: &Node) {
        match &node.kind {
            // What has a tag is encrypted or otherwise not text yet.
            _ if node.tag.is_some() => {}
            Kind::String(text) if (node.is_template() || text.contains("{#")) && self.first_look(node.span) => {
                self.report(Analysis::of_template(text), text, node.span);
            }
            Kind::Seq(items) => items.iter().for_each(|item| self.check_templates(item)),
            Kind::Map(map) => map.iter().for_each(|(_, value)| self.check_templates(value)),
            _ => {}
        }
    }

    pub(super) fn check_expression(&mut self, text: &str, span: Span) {
        if self.first_look(span) {
            if is_in_braces(text) {
                let message = "a condition is an expression already; the braces are not needed";
                self.diagnostics.push(Diagnostic::warning(span, message));
            }
            self.report(Analysis::of_expression(text), text, span);
        }
    }

    fn report(&mut self, analysis: Result<Analysis, SyntaxError>, text: &str, span: Span) {
        let analysis = match analysis {
            Ok(analysis) => analysis,
            Err(error) => {
                let message = format!("this template is not valid: {}", error.message);
                self.diagnostics.push(Diagnostic::error(place_in(text, span, error.offset, 1), message));
                return;
            }
        };
        for unknown in unknown_callables(&analysis) {
            let place = place_in(text, span, unknown.call.offset, unknown.call.len);
            self.diagnostics.push(Diagnostic::error(place, unknown.message).maybe_help(unknown.help));
        }
    }
}
