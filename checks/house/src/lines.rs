//! Lines of code: those that are neither blank nor comments.

use crate::names::is_punct;
use proc_macro2::{Group, TokenStream, TokenTree};
use std::collections::BTreeSet;

/// The lines with tokens of other things than doc comments.
pub(crate) fn code_lines(tokens: TokenStream, lines: &mut BTreeSet<usize>) {
    let tokens = tokens.into_iter().collect::<Vec<_>>();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        // A doc comment is `#`, for the text of a module also `!`, and a group.
        let bang = usize::from(tokens.get(at + 1).is_some_and(|next| is_punct(next, '!')));
        match (token, tokens.get(at + 1 + bang)) {
            (hash, Some(TokenTree::Group(doc))) if is_punct(hash, '#') && is_doc(doc) => {
                at += 1 + bang;
            }
            (TokenTree::Group(group), _) => {
                lines.insert(group.span_open().start().line);
                code_lines(group.stream(), lines);
                lines.insert(group.span_close().end().line);
            }
            _ => lines.extend(token.span().start().line..=token.span().end().line),
        }
        at += 1;
    }
}

/// Whether a group is what the parser makes of a doc comment: `[doc = "..."]`.
fn is_doc(group: &Group) -> bool {
    let tokens = group.stream().into_iter().collect::<Vec<_>>();
    matches!(&tokens[..], [TokenTree::Ident(doc), _, TokenTree::Literal(_)] if doc == "doc")
}

#[cfg(test)]
mod tests {
    use crate::names::find;

    #[test]
    fn comments_blank_lines_and_tests_are_no_lines_of_code() {
        let source = "//! doc\n\n// note\nfn f() {\n    /* note */\n    \
            g(\"a\n\n  b\"); // note\n}\n\
            /// doc\n#[inline]\nfn h() {}\n\n\
            /// doc\n#[cfg(test)]\nmod tests {\n    fn i() {}\n}\n";
        let lines = find(source, vec!["a".into()]).unwrap().lines;
        assert!(lines.into_iter().eq([4, 6, 7, 8, 9, 11, 12]));
    }
}
