//! What a user of the library can name, in the form of a header: each public item without its body.
//! Left out is what is `doc(hidden)`, a file by `#![doc(hidden)]`: it is for other crates of this
//! repository.
//!
//! The lint `unreachable_pub` sees to it that what says `pub` can be reached.

use crate::Result;
use crate::house::House;
use crate::names::{is_for_models, is_for_tests};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use syn::{Attribute, Fields, ImplItem, Item, Type, Visibility};

/// The header of the library, file by file.
pub(crate) fn header(house: &House, read: &dyn Fn(&str) -> Option<String>) -> Result<String> {
    let mut files = Vec::new();
    for file in &house.files {
        let text = read(&file.path).unwrap_or_default();
        let parsed = syn::parse_file(&text).map_err(|error| format!("{}: {error}", file.path))?;
        if !hidden(&parsed.attrs) {
            files.push((&file.path, parsed.items));
        }
    }
    let names = files.iter().flat_map(|(_, items)| items);
    let names: BTreeSet<String> = names.filter_map(name).collect();
    let mut header = String::new();
    for (path, items) in files {
        let items = items.into_iter().filter_map(|item| public(item, &names));
        let items: Vec<Item> = items.collect();
        if items.is_empty() {
            continue;
        }
        let file = syn::File {
            shebang: None,
            attrs: Vec::new(),
            items,
        };
        writeln!(header, "// {path}\n{}", prettyplease::unparse(&file))?;
    }
    Ok(header)
}

/// Whether this is for tests and models only, or `doc(hidden)`: for other crates of this repository.
fn hidden(attrs: &[Attribute]) -> bool {
    let is_undocumented = |attr: &Attribute| {
        let word = attr.parse_args::<syn::Ident>();
        attr.path().is_ident("doc") && word.is_ok_and(|word| word == "hidden")
    };
    attrs
        .iter()
        .any(|attr| is_for_tests(attr) || is_for_models(attr) || is_undocumented(attr))
}

/// The name of a public type or trait.
fn name(item: &Item) -> Option<String> {
    let (vis, name) = match item {
        Item::Enum(item) => (&item.vis, &item.ident),
        Item::Struct(item) => (&item.vis, &item.ident),
        Item::Trait(item) => (&item.vis, &item.ident),
        Item::Type(item) => (&item.vis, &item.ident),
        _ => return None,
    };
    is_public(vis).then(|| name.to_string())
}

fn is_public(vis: &Visibility) -> bool {
    matches!(vis, Visibility::Public(_))
}

/// What a user sees of an item, if anything.
fn public(mut item: Item, names: &BTreeSet<String>) -> Option<Item> {
    let (vis, attrs) = match &mut item {
        Item::Const(item) => (&item.vis, &mut item.attrs),
        Item::Enum(item) => {
            for variant in &mut item.variants {
                bare(&mut variant.attrs);
                fields(&mut variant.fields, false);
            }
            (&item.vis, &mut item.attrs)
        }
        Item::Fn(item) => {
            item.block.stmts.clear();
            (&item.vis, &mut item.attrs)
        }
        Item::Impl(_) => return implementation(item, names),
        Item::Mod(item) => {
            item.content = None;
            item.semi = Some(Default::default());
            (&item.vis, &mut item.attrs)
        }
        Item::Struct(item) => {
            fields(&mut item.fields, true);
            (&item.vis, &mut item.attrs)
        }
        Item::Trait(item) => {
            for item in &mut item.items {
                match item {
                    syn::TraitItem::Fn(item) => {
                        bare(&mut item.attrs);
                        item.default = None;
                    }
                    syn::TraitItem::Type(item) => bare(&mut item.attrs),
                    syn::TraitItem::Const(item) => bare(&mut item.attrs),
                    _ => {}
                }
            }
            (&item.vis, &mut item.attrs)
        }
        Item::Type(item) => (&item.vis, &mut item.attrs),
        Item::Use(item) => (&item.vis, &mut item.attrs),
        _ => return None,
    };
    if !is_public(vis) || hidden(attrs) {
        return None;
    }
    bare(attrs);
    Some(item)
}

/// What is public of an implementation: its functions, or that a public type has a trait.
fn implementation(item: Item, names: &BTreeSet<String>) -> Option<Item> {
    let Item::Impl(mut item) = item else {
        return None;
    };
    if hidden(&item.attrs) {
        return None;
    }
    bare(&mut item.attrs);
    let Type::Path(of) = &*item.self_ty else {
        return None;
    };
    if !names.contains(&of.path.segments.last()?.ident.to_string()) {
        return None;
    }
    if item.trait_.is_some() {
        item.items.clear();
        return Some(Item::Impl(item));
    }
    item.items.retain_mut(|item| match item {
        ImplItem::Fn(item) => {
            let is_seen = is_public(&item.vis) && !hidden(&item.attrs);
            bare(&mut item.attrs);
            item.block.stmts.clear();
            is_seen
        }
        ImplItem::Const(item) => {
            bare(&mut item.attrs);
            is_public(&item.vis)
        }
        _ => false,
    });
    (!item.items.is_empty()).then_some(Item::Impl(item))
}

/// Keeps of attributes what a user has to know.
fn bare(attrs: &mut Vec<Attribute>) {
    let kept = ["cfg", "derive", "must_use", "non_exhaustive"];
    attrs.retain(|attr| kept.iter().any(|name| attr.path().is_ident(name)));
}

/// Leaves out fields that are not public, where fields have a visibility of their own.
fn fields(fields: &mut Fields, of_struct: bool) {
    let is_seen = |vis: &Visibility| !of_struct || is_public(vis);
    match fields {
        Fields::Named(named) => {
            let all = std::mem::take(&mut named.named);
            named.named = all
                .into_iter()
                .filter(|field| is_seen(&field.vis))
                .collect();
            named
                .named
                .iter_mut()
                .for_each(|field| bare(&mut field.attrs));
        }
        Fields::Unnamed(unnamed) => {
            let all = std::mem::take(&mut unnamed.unnamed);
            unnamed.unnamed = all
                .into_iter()
                .filter(|field| is_seen(&field.vis))
                .collect();
        }
        Fields::Unit => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header_of(text: &str) -> String {
        let read = |path: &str| (path == "src/lib.rs").then(|| text.to_owned());
        header(&House::read(&read).unwrap(), &read).unwrap()
    }

    #[test]
    fn what_a_user_can_name_is_listed_without_bodies() {
        let seen = header_of(
            "/// Told.\n#[derive(Debug)] pub struct A { pub a: u8, b: u8 }\n\
             impl A { pub fn new(a: u8) -> A { A { a, b: a } } fn own(&self) {} }\n\
             impl Clone for A { fn clone(&self) -> A { A::new(self.a) } }\n\
             pub enum E { One(u8), Two { two: u8 } }\n\
             pub const C: u8 = 1;",
        );
        let expected = "// src/lib.rs\n#[derive(Debug)]\npub struct A {\n    pub a: u8,\n}\n\
             impl A {\n    pub fn new(a: u8) -> A {}\n}\nimpl Clone for A {}\n\
             pub enum E {\n    One(u8),\n    Two { two: u8 },\n}\npub const C: u8 = 1;\n\n";
        assert_eq!(seen, expected);
    }

    #[test]
    fn what_a_user_cannot_name_is_not() {
        let seen = header_of(
            "struct A; impl A { pub fn a() {} } impl Clone for A {}\n\
             pub(crate) fn f() {} #[cfg(test)] pub fn g() {} #[cfg(loom)] pub fn h() {} #[doc(hidden)] pub fn i() {}",
        );
        assert_eq!(seen, "");
    }
}
