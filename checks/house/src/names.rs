//! What one file says: the paths that it names, its `unsafe`, its lines of code.
//!
//! Code for tests is apart: whatever stands under a `cfg` that only a build of tests fulfills.

use crate::lines::code_lines;
use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens;
use std::collections::BTreeSet;
use syn::parse::{ParseStream, Parser};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, Meta, Token, UseTree};

/// A path from the root of the crate: of a module, or of something in one.
pub(crate) type Path = Vec<String>;

/// A path that is named, and where.
#[derive(Debug)]
pub(crate) struct Named {
    /// The module whose code names the path.
    pub(crate) by: Path,
    pub(crate) path: Path,
    pub(crate) line: usize,
}

/// A name that `use` brings into a module.
#[derive(Debug)]
pub(crate) struct Import {
    /// The module and the name.
    pub(crate) name: Path,
    /// What it stands for; nothing of this crate if there is none.
    pub(crate) target: Option<Path>,
}

/// What was found in a file.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) named: Vec<Named>,
    pub(crate) imports: Vec<Import>,
    /// The modules that have files of their own.
    pub(crate) modules: Vec<Path>,
    /// The lines of `unsafe` blocks.
    pub(crate) unsafe_blocks: Vec<usize>,
    pub(crate) unsafe_impls: usize,
    pub(crate) unsafe_fns: usize,
    /// Lines of code.
    pub(crate) lines: BTreeSet<usize>,
}

/// Reads the file of a module.
pub(crate) fn find(source: &str, module: Path) -> syn::Result<Found> {
    let tokens = source.parse::<TokenStream>()?;
    let file = syn::parse2::<syn::File>(tokens.clone())?;
    let mut finder = Finder {
        module,
        children: children(&file.items),
        found: Found::default(),
    };
    if file.attrs.iter().any(is_for_tests) {
        return Ok(finder.found);
    }
    code_lines(tokens, &mut finder.found.lines);
    finder.visit_file(&file);
    Ok(finder.found)
}

struct Finder {
    /// The module that the code is in.
    module: Path,
    /// The modules that this module declares.
    children: BTreeSet<String>,
    found: Found,
}

impl Finder {
    /// A path from the root of the crate. None: it begins with something else than `crate`, `self`,
    /// `super` or a child.
    fn absolute(&self, path: &[String]) -> Option<Path> {
        let mut from_root = self.module.clone();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => {
                from_root.clear();
                rest = &path[1..];
            }
            "self" => rest = &path[1..],
            "super" => {}
            child if self.children.contains(child) => {}
            _ => return None,
        }
        while let Some((first, after)) = rest.split_first()
            && first == "super"
        {
            from_root.pop();
            rest = after;
        }
        from_root.extend_from_slice(rest);
        Some(from_root)
    }

    fn name(&mut self, path: &[String], span: Span) {
        if let Some(path) = self.absolute(path) {
            self.found.named.push(Named {
                by: self.module.clone(),
                path,
                line: span.start().line,
            });
        }
    }

    /// A single word in code is a variable or the like.
    fn name_if_long(&mut self, path: &[String], span: Span) {
        if path.len() > 1 {
            self.name(path, span);
        }
    }

    fn import(&mut self, path: &[String], alias: String) {
        self.found.imports.push(Import {
            name: [self.module.as_slice(), &[alias]].concat(),
            target: self.absolute(path),
        });
    }

    fn use_tree(&mut self, mut path: Path, tree: &UseTree) {
        let (last, alias) = match tree {
            UseTree::Path(tree) => {
                path.push(tree.ident.to_string());
                return self.use_tree(path, &tree.tree);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.use_tree(path.clone(), tree);
                }
                return;
            }
            UseTree::Glob(_) => return self.name(&path, tree.span()),
            UseTree::Name(name) => (&name.ident, &name.ident),
            UseTree::Rename(rename) => (&rename.ident, &rename.rename),
        };
        if last != "self" || path.is_empty() {
            path.push(last.to_string());
        }
        let alias = match path.last() {
            Some(module) if alias == "self" => module.clone(),
            _ => alias.to_string(),
        };
        self.name(&path, tree.span());
        self.import(&path, alias);
    }

    /// What a macro is given is not parsed: paths and `unsafe` are looked for among its tokens.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens = tokens.into_iter().collect::<Vec<_>>();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            match token {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(ident) if ident == "use" => {
                    let end = tokens[at..].iter().position(|token| is_punct(token, ';'));
                    let item = &tokens[at..=at + end.unwrap_or(0)];
                    if let Ok(item) = syn::parse2(item.iter().cloned().collect()) {
                        self.visit_item_use(&item);
                        at += end.unwrap_or(0);
                    }
                }
                TokenTree::Ident(ident) if ident == "unsafe" => {
                    let line = ident.span().start().line;
                    match (tokens.get(at + 1), tokens.get(at + 2)) {
                        (Some(TokenTree::Group(_)), _) => self.found.unsafe_blocks.push(line),
                        (Some(next), _) if is_word(next, "impl") => self.found.unsafe_impls += 1,
                        // With a name: without one it is the type of a pointer.
                        (Some(next), Some(TokenTree::Ident(_))) if is_word(next, "fn") => {
                            self.found.unsafe_fns += 1;
                        }
                        _ => {}
                    }
                }
                TokenTree::Ident(ident) if at == 0 || !is_punct(&tokens[at - 1], ':') => {
                    self.name_if_long(&path_of(&tokens[at..]), ident.span());
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// Whether something is for tests only; if it is, its lines are no lines of code.
    fn is_test(&mut self, node: &impl ToTokens) -> bool {
        let attributes = |input: ParseStream<'_>| {
            let attributes = input.call(Attribute::parse_outer)?;
            input.parse::<TokenStream>()?;
            Ok(attributes)
        };
        let attributes = attributes.parse2(node.to_token_stream());
        let is_test = attributes.is_ok_and(|all| all.iter().any(is_for_tests));
        if is_test {
            let its = node.span().start().line..=node.span().end().line;
            self.found.lines.retain(|line| !its.contains(line));
        }
        is_test
    }
}

/// What can have an attribute is visited unless it is for tests.
macro_rules! apart_from_tests {
    ($($visit:ident $node:ident),*) => {
        $(fn $visit(&mut self, node: &'ast syn::$node) {
            if !self.is_test(node) {
                visit::$visit(self, node);
            }
        })*
    };
}

impl<'ast> Visit<'ast> for Finder {
    apart_from_tests!(
        visit_item Item, visit_impl_item ImplItem, visit_trait_item TraitItem, visit_stmt Stmt,
        visit_arm Arm, visit_field Field, visit_variant Variant, visit_field_value FieldValue
    );

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        self.module.push(module.ident.to_string());
        match &module.content {
            None => self.found.modules.push(self.module.clone()),
            Some((_, items)) => {
                let outside = std::mem::replace(&mut self.children, children(items));
                visit::visit_item_mod(self, module);
                self.children = outside;
            }
        }
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if item.leading_colon.is_none() {
            self.use_tree(Path::new(), &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let segments = path.segments.iter();
            let names = segments.map(|one| one.ident.to_string());
            self.name_if_long(&names.collect::<Path>(), path.span());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, its: &'ast syn::Macro) {
        self.tokens(its.tokens.clone());
        visit::visit_macro(self, its);
    }

    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        let line = block.unsafe_token.span.start().line;
        self.found.unsafe_blocks.push(line);
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        self.found.unsafe_impls += usize::from(item.unsafety.is_some());
        visit::visit_item_impl(self, item);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        self.found.unsafe_fns += usize::from(signature.unsafety.is_some());
        visit::visit_signature(self, signature);
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}

fn children(items: &[Item]) -> BTreeSet<String> {
    let modules = items.iter().filter_map(|item| match item {
        Item::Mod(module) => Some(module.ident.to_string()),
        _ => None,
    });
    modules.collect()
}

/// Whether an attribute is a `cfg` that only a build of tests fulfills.
pub(crate) fn is_for_tests(attribute: &Attribute) -> bool {
    needs(attribute, &["test", "doctest"])
}

/// Whether the attribute leaves out what it is at, unless it is built for models.
pub(crate) fn is_for_models(attribute: &Attribute) -> bool {
    needs(attribute, &["loom"])
}

/// Whether the attribute is a `cfg` that is not fulfilled without one of these words.
fn needs(attribute: &Attribute, words: &[&str]) -> bool {
    fn needs_word(condition: &Meta, words: &[&str]) -> bool {
        let Meta::List(list) = condition else {
            return words.iter().any(|word| condition.path().is_ident(word));
        };
        let parts = syn::punctuated::Punctuated::<Meta, Token![,]>::parse_terminated;
        let parts = parts.parse2(list.tokens.clone()).unwrap_or_default();
        match list.path.get_ident() {
            Some(ident) if ident == "all" => parts.iter().any(|part| needs_word(part, words)),
            Some(ident) if ident == "any" => {
                !parts.is_empty() && parts.iter().all(|part| needs_word(part, words))
            }
            _ => false,
        }
    }
    let is_cfg = attribute.path().is_ident("cfg");
    is_cfg
        && attribute
            .parse_args()
            .is_ok_and(|meta| needs_word(&meta, words))
}

pub(crate) fn is_punct(token: &TokenTree, which: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == which)
}

fn is_word(token: &TokenTree, which: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == which)
}

/// The path that tokens begin with.
fn path_of(tokens: &[TokenTree]) -> Path {
    let mut path = Path::new();
    let mut rest = tokens;
    while let [TokenTree::Ident(ident), after @ ..] = rest {
        path.push(ident.to_string());
        match after {
            [a, b, after @ ..] if is_punct(a, ':') && is_punct(b, ':') => rest = after,
            _ => break,
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str) -> Found {
        find(source, vec!["net".into(), "conn".into()]).unwrap()
    }

    /// The paths that a source in `net::conn` names.
    fn named(source: &str) -> Vec<String> {
        let named = found(source).named;
        named.iter().map(|named| named.path.join("::")).collect()
    }

    #[test]
    fn use_trees_name_each_of_their_leaves() {
        let source = "use crate::{io::{self, Fd as F}, Cx, sync::*}; use ::io::X; use std::io;";
        assert_eq!(named(source), ["io", "io::Fd", "Cx", "sync"]);
        let imports = found("pub use crate::io::Fd as F; use std::io::{self};").imports;
        let names = imports.iter().map(|import| import.name.join("::"));
        assert_eq!(names.collect::<Vec<_>>(), ["net::conn::F", "net::conn::io"]);
        assert_eq!(imports[0].target, Some(vec!["io".into(), "Fd".into()]));
        assert_eq!(imports[1].target, None);
    }

    #[test]
    fn paths_of_expressions_types_and_patterns_are_named() {
        let source = "fn f(x: Vec<crate::io::Fd>) -> <T as crate::color::Key>::Of {
            match x { crate::sim::NONE => crate::sync::new::<super::Timer>(), _ => g(self.x) }
        }";
        let paths = [
            "io::Fd",
            "color::Key::Of",
            "sim::NONE",
            "sync::new",
            "net::Timer",
        ];
        let mut found = named(source);
        found.sort();
        let mut paths = paths.map(str::to_owned);
        paths.sort();
        assert_eq!(found, paths);
    }

    #[test]
    fn macros_are_named_and_so_is_what_they_are_given() {
        let source = "crate::sync::thread_local! { static X: u8 = f(crate::color::ZERO); }
            macro_rules! m { () => { $crate::sched::f(); use super::{stream, b::Fd}; } } mod b;";
        let paths = [
            "color::ZERO",
            "sync::thread_local",
            "sched::f",
            "net::stream",
            "net::b::Fd",
        ];
        assert_eq!(named(source), paths);
    }

    #[test]
    fn super_self_and_children_are_resolved() {
        let source = "use super::super::io; use b::c; use self::b::d; use x::y; use ::b::z; mod b;
            mod a { use super::super::stream; use b::e; } use b::*;
            fn f(b: u8) { b::g(b, ::b::h) }";
        let paths = [
            "io",
            "net::conn::b::c",
            "net::conn::b::d",
            "net::stream",
            "net::conn::b",
            "net::conn::b::g",
        ];
        assert_eq!(named(source), paths);
        assert_eq!(found(source).modules, [["net", "conn", "b"]]);
    }

    #[test]
    fn tests_docs_and_visibility_name_nothing() {
        let source = "/// [`crate::io`]
            pub(in crate::net) struct S { #[cfg(test)] x: crate::sim::X }
            #[cfg(test)] mod tests { use crate::sim; unsafe fn f() { unsafe { g() } } }
            #[cfg(all(test, not(loom)))] mod m;
            impl S { #[cfg(test)] fn f() { crate::sim::f() } }
            fn f() { #[cfg(test)] crate::sim::f(); }";
        assert_eq!(named(source), Vec::<String>::new());
        assert!(found(source).modules.is_empty());
        assert!(found(source).unsafe_blocks.is_empty());
        assert_eq!(found(source).unsafe_fns, 0);
        let source = "#[cfg(loom)] use crate::model; #[cfg(feature = \"sim\")] use crate::sim;
            #[cfg(not(test))] use crate::io; #[cfg(any(test, loom))] use crate::net;";
        assert_eq!(named(source), ["model", "sim", "io", "net"]);
    }

    #[test]
    fn unsafe_is_counted_by_kind() {
        let source = "unsafe impl Send for S {}
            unsafe fn f(g: unsafe fn()) { unsafe { g() } }
            trait T { unsafe fn h(); }
            fn i() { m!(unsafe { j(unsafe { k() }) }, unsafe impl Send for S {}, unsafe fn l()); }
            type P = m!(unsafe fn());";
        let found = found(source);
        assert_eq!(found.unsafe_blocks, [2, 4, 4]);
        assert_eq!((found.unsafe_impls, found.unsafe_fns), (2, 3));
    }
}
