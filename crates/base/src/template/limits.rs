//! Limits that keep a hostile template from exhausting the stack.
//!
//! The parser bounds brackets and blocks, but operators, filters and `elif` chains make the syntax
//! tree deep without any nesting in the text, and everything that walks the tree is recursive.

use minijinja::machinery::{Token, tokenize};

use super::{analysis::SyntaxError, environment::syntax};

/// Steps in one expression: operators, attributes, calls, filters, tests.
const MAX_STEPS: usize = 400;
const MAX_ELIFS: usize = 200;
const MAX_TEXT: usize = 4 << 20;

/// Steps of one instruction each that a render may take; a loop in a loop is soon endless.
pub(super) const FUEL: u64 = 5_000_000;

/// How deep macros, includes and loops may nest while rendering.
pub(super) const RECURSION: usize = 200;

/// How far variables may refer to variables that refer to variables.
pub(super) const VARIABLE_DEPTH: usize = 32;

/// How many items of variables one call may look at.
pub(super) const COLLECTION_STEPS: usize = 2_000_000;

/// Refuses a text whose syntax tree would be too deep. A text that is not valid passes: the parser
/// says it better.
pub(super) fn check(text: &str, is_expression: bool) -> Result<(), SyntaxError> {
    if text.len() > MAX_TEXT {
        return Err(SyntaxError::new(0, format!("longer than {} MiB, the limit for a template", MAX_TEXT >> 20)));
    }
    let (mut steps, mut elifs) = (0, 0);
    for token in tokenize(text, is_expression, syntax()) {
        let Ok((token, span)) = token else { return Ok(()) };
        match token {
            Token::VariableStart | Token::BlockStart => steps = 0,
            Token::Ident("elif") => elifs += 1,
            token if makes_deeper(&token) => steps += 1,
            _ => {}
        }
        if steps > MAX_STEPS || elifs > MAX_ELIFS {
            let message = "too long an expression; split it with `set` or into variables";
            return Err(SyntaxError::new(span.start_offset as usize, message));
        }
    }
    Ok(())
}

fn makes_deeper(token: &Token<'_>) -> bool {
    match token {
        Token::Ident(word) => matches!(*word, "not" | "and" | "or" | "in" | "is" | "if" | "else"),
        Token::TemplateData(_) | Token::VariableEnd | Token::BlockEnd => false,
        Token::Str(_) | Token::String(_) | Token::Int(_) | Token::Int128(_) | Token::Float(_) => false,
        Token::Comma | Token::Colon | Token::Assign => false,
        Token::BracketClose | Token::ParenClose | Token::BraceClose => false,
        _ => true,
    }
}
