//! The searches: with all rules, and with each rule switched off.

mod search;
mod whole;
