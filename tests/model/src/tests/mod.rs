//! The searches: with all rules, and with each rule switched off.

mod rules_off;
mod scopes;
mod search;
mod whole;
