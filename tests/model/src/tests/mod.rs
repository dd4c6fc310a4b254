//! The searches: with all rules, with each rule switched off, and with each known gap of the program left open.

mod rules_off;
mod scopes;
mod search;
mod weaknesses;
mod whole;
