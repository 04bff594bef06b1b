//! Reading the source: what is left out, and how a piece of it is quoted.

use quote::ToTokens;
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, Stmt};

/// A quoted piece is cut here.
const QUOTE_MAX: usize = 80;

/// Whether something is not in the code that ships, or only checks it.
pub(crate) fn left_out(attributes: &[Attribute]) -> bool {
    let conditions = attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("cfg"));
    conditions.into_iter().any(|condition| {
        let syn::Meta::List(list) = &condition.meta else {
            return false;
        };
        let condition = list.tokens.to_string().replace(' ', "");
        matches!(condition.as_str(), "test" | "loom" | "miri")
            || condition.starts_with("all(test")
            || condition.starts_with("any(test")
            || condition.contains("debug_assertions")
    })
}

/// The attributes before a statement, whatever it is.
pub(crate) fn statement_attributes(statement: &Stmt) -> Vec<Attribute> {
    let attributes = |input: ParseStream<'_>| {
        let attributes = input.call(Attribute::parse_outer)?;
        input.parse::<proc_macro2::TokenStream>()?;
        Ok(attributes)
    };
    attributes
        .parse2(statement.to_token_stream())
        .unwrap_or_default()
}

/// A piece of the source in one line, without its comments, cut if it is long.
pub(crate) fn one_line(piece: &str) -> String {
    let mut line = String::new();
    for part in piece.lines().map(str::trim) {
        let part = part.split(" // ").next().unwrap_or_default().trim_end();
        if part.is_empty() || part.starts_with("//") {
            continue;
        }
        let joined = line.is_empty() || line.ends_with('(') || part.starts_with(['.', ')', '?']);
        line.push_str(if joined { "" } else { " " });
        line.push_str(part);
    }
    match line.char_indices().nth(QUOTE_MAX) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}
