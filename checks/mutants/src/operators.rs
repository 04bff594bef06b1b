//! Which mutations there are.
//!
//! Each is a pair of texts that go before and after a piece of the source, with a question between
//! them: is this the mutant that runs? What the mutant does instead is a copy of the piece, so that
//! the operands are evaluated once, and in the copy there are no other mutants, since one runs at a
//! time.

use crate::rewrite::{Edit, MUTANT};
use crate::source::{left_out, one_line, statement_attributes};
use proc_macro2::Span;
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    BinOp, Block, Expr, ExprBinary, ExprMethodCall, ReturnType, Signature, Stmt, Type, UnOp,
};

/// A way to break the source in one place.
#[derive(Clone, Debug)]
pub(crate) struct Mutant {
    /// Its number in the build. From 1, and the same whatever is tried.
    pub(crate) id: u32,
    pub(crate) file: String,
    /// From 1.
    pub(crate) line: usize,
    /// From 1.
    pub(crate) column: usize,
    pub(crate) function: String,
    /// First and last line of the function.
    pub(crate) lines: (usize, usize),
    pub(crate) what: String,
    /// Which of several with the same file, function and text, from 1.
    pub(crate) nth: usize,
    pub(crate) edit: Edit,
}

impl Mutant {
    /// What names it also when lines have moved.
    pub(crate) fn key(&self) -> String {
        let nth = match self.nth {
            1 => String::new(),
            nth => format!(" ({nth})"),
        };
        format!("{}: {}: {}{nth}", self.file, self.function, self.what)
    }
}

/// All mutants of a file, in their order; their numbers are the caller's to give.
pub(crate) fn find(file: &str, source: &str, parsed: &syn::File) -> Vec<Mutant> {
    let mut finder = Finder {
        file,
        source,
        scope: Vec::new(),
        lines: (0, 0),
        found: Vec::new(),
    };
    finder.visit_file(parsed);
    let mut found = finder.found;
    for i in 0..found.len() {
        let (before, rest) = found.split_at_mut(i);
        let same =
            |other: &&Mutant| (&other.function, &other.what) == (&rest[0].function, &rest[0].what);
        rest[0].nth = before.iter().filter(same).count() + 1;
    }
    found
}

struct Finder<'s> {
    file: &'s str,
    source: &'s str,
    /// The modules, types and functions around, outermost first.
    scope: Vec<String>,
    lines: (usize, usize),
    found: Vec<Mutant>,
}

impl Finder<'_> {
    fn within(&mut self, name: String, look: impl FnOnce(&mut Self)) {
        self.scope.push(name);
        look(self);
        self.scope.pop();
    }

    fn text(&self, of: Span) -> String {
        one_line(&self.source[of.byte_range()])
    }

    /// A mutant that puts two texts around a piece.
    fn around(&mut self, piece: Span, what: String, before: String, after: &str) {
        self.add(piece, piece.byte_range(), what, before, after);
    }

    fn add(
        &mut self,
        at: Span,
        range: std::ops::Range<usize>,
        what: String,
        before: String,
        after: &str,
    ) {
        self.found.push(Mutant {
            id: 0,
            file: self.file.to_owned(),
            line: at.start().line,
            column: at.start().column + 1,
            function: self.scope.join("::"),
            lines: self.lines,
            what,
            nth: 0,
            edit: Edit {
                range,
                before,
                after: after.to_owned(),
            },
        });
    }

    /// A mutant that evaluates something else instead of an expression.
    fn instead(&mut self, expression: Span, what: String, other: String) {
        self.around(
            expression,
            what,
            format!("(if {MUTANT} {{ {other} }} else {{ "),
            " })",
        );
    }

    fn function(&mut self, attributes: &[syn::Attribute], signature: &Signature, body: &Block) {
        let name = signature.ident.to_string();
        if left_out(attributes) || signature.constness.is_some() || name.starts_with("assert_") {
            return;
        }
        let lines = (signature.span().start().line, body.span().end().line);
        let outer = std::mem::replace(&mut self.lines, lines);
        self.within(name, |this| {
            this.early_returns(signature, body);
            this.visit_block(body);
        });
        self.lines = outer;
    }

    fn early_returns(&mut self, signature: &Signature, body: &Block) {
        let only = match body.stmts.as_slice() {
            [] => return,
            // Skipping it is the same.
            [Stmt::Expr(only, Some(_))] if can_be_skipped(only) => return,
            [Stmt::Expr(only, None)] => Some(only.to_token_stream().to_string()),
            _ => None,
        };
        let place = body.brace_token.span.open();
        let at = place.byte_range().end;
        for value in values(&signature.output) {
            if only.as_deref() != Some(value) {
                let what = format!("return {value}").trim_end().to_owned();
                let text = format!(" if {MUTANT} {{ {what}; }}");
                self.add(signature.ident.span(), at..at, what, text, "");
            }
        }
    }

    fn condition(&mut self, condition: &Expr, to_true: bool) {
        if has_let(condition) || is_switch(condition) {
            return;
        }
        let (span, text) = (condition.span(), self.text(condition.span()));
        // What the condition does besides is done.
        if to_true {
            self.around(
                span,
                format!("true for `{text}`"),
                "((".into(),
                &format!(") | {MUTANT})"),
            );
        }
        self.around(
            span,
            format!("false for `{text}`"),
            "((".into(),
            &format!(") & !{MUTANT})"),
        );
    }

    fn binary(&mut self, binary: &ExprBinary) {
        let (span, text) = (binary.span(), self.text(binary.span()));
        let other = |op: &str| {
            let (left, right) = (
                binary.left.to_token_stream(),
                binary.right.to_token_stream(),
            );
            format!("({left}) {op} ({right})")
        };
        let is = binary.op.to_token_stream().to_string();
        if let Some(op) = complement(&binary.op) {
            let what = format!("`{op}` for `{is}` in `{text}`");
            self.around(span, what, format!("({MUTANT} != ("), "))");
        }
        let joins = matches!(binary.op, BinOp::And(_) | BinOp::Or(_));
        let sides = [&*binary.left, &*binary.right];
        if joins && sides.iter().any(|side| has_let(side) || is_switch(side)) {
            return;
        }
        if let Some(op) = neighbor(&binary.op) {
            self.instead(span, format!("`{op}` for `{is}` in `{text}`"), other(op));
        }
    }

    fn method_call(&mut self, call: &ExprMethodCall) {
        let name = call.method.to_string();
        let (span, text) = (call.span(), self.text(call.span()));
        if name == "rev" && call.args.is_empty() {
            let after = format!(
                "; std::iter::from_fn(move || if {MUTANT} {{ both_ways.next_back() }} \
                 else {{ both_ways.next() }}) }})"
            );
            self.around(
                span,
                format!("no `rev` in `{text}`"),
                "({ let mut both_ways = ".into(),
                &after,
            );
        }
        if let Some(other) = other_method(&name) {
            let mut call = call.clone();
            call.method = syn::Ident::new(other, call.method.span());
            let other = call.to_token_stream().to_string();
            self.instead(
                span,
                format!("`{}` for `{name}` in `{text}`", call.method),
                other,
            );
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !left_out(&item.attrs) {
            self.within(item.ident.to_string(), |this| {
                visit::visit_item_mod(this, item)
            });
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let of = match &*item.self_ty {
            Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        };
        let mut name = of.unwrap_or_else(|| self.text(item.self_ty.span()));
        if let Some((_, of, _)) = &item.trait_ {
            let of = self.text(of.segments.last().span());
            if of == "Debug" || of == "Display" {
                return;
            }
            name = format!("<{name} as {of}>");
        }
        if !left_out(&item.attrs) {
            self.within(name, |this| visit::visit_item_impl(this, item));
        }
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.within(item.ident.to_string(), |this| {
            visit::visit_item_trait(this, item)
        });
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.function(&item.attrs, &item.sig, body);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if left_out(&statement_attributes(statement)) {
            return;
        }
        if let Stmt::Expr(expression, Some(_)) = statement
            && can_be_skipped(expression)
        {
            let what = format!("skip `{}`", self.text(statement.span()));
            self.around(statement.span(), what, format!("if !{MUTANT} {{ "), " }");
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if left_out(&arm.attrs) {
            return;
        }
        if let Some((_, guard)) = &arm.guard {
            self.condition(guard, true);
        }
        visit::visit_arm(self, arm);
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        if !left_out(&field.attrs) {
            visit::visit_field_value(self, field);
        }
    }

    fn visit_expr(&mut self, expression: &'ast Expr) {
        match expression {
            Expr::If(e) if is_fault(&e.cond) => {
                // Never runs, but in a model.
                if let Some((_, other)) = &e.else_branch {
                    self.visit_expr(other);
                }
                return;
            }
            Expr::If(e) => self.condition(&e.cond, true),
            Expr::While(e) => self.condition(&e.cond, false),
            Expr::Binary(e) => self.binary(e),
            Expr::MethodCall(e) => self.method_call(e),
            Expr::Unary(e) if matches!(e.op, UnOp::Not(_)) && !is_switch(&e.expr) => {
                let what = format!("no `!` in `{}`", self.text(e.span()));
                self.instead(e.span(), what, e.expr.to_token_stream().to_string());
            }
            // Constants: the length of an array, a block.
            Expr::Repeat(e) => return self.visit_expr(&e.expr),
            Expr::Const(_) => return,
            _ => {}
        }
        visit::visit_expr(self, expression);
    }

    // No code, constants, or of no importance.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
    fn visit_macro(&mut self, _: &'ast syn::Macro) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
}

/// What a function could return instead of an answer.
fn values(output: &ReturnType) -> &'static [&'static str] {
    const DEFAULT: &[&str] = &["Default::default()"];
    let ReturnType::Type(_, output) = output else {
        return &[""];
    };
    match &**output {
        Type::Tuple(tuple) if tuple.elems.is_empty() => &[""],
        Type::Tuple(_) | Type::Array(_) => DEFAULT,
        Type::Path(path) => {
            let Some(last) = path.path.segments.last() else {
                return &[];
            };
            match last.ident.to_string().as_str() {
                "bool" => &["true", "false"],
                "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => &["0", "1"],
                "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => &["0", "1"],
                "Option" => &["None"],
                "Result" => &["Ok(Default::default())"],
                _ => DEFAULT,
            }
        }
        _ => &[],
    }
}

/// The comparison that is true when this one is false.
fn complement(op: &BinOp) -> Option<&'static str> {
    Some(match op {
        BinOp::Eq(_) => "!=",
        BinOp::Ne(_) => "==",
        BinOp::Lt(_) => ">=",
        BinOp::Le(_) => ">",
        BinOp::Gt(_) => "<=",
        BinOp::Ge(_) => "<",
        _ => return None,
    })
}

/// The operator that this one is easily mistaken for.
fn neighbor(op: &BinOp) -> Option<&'static str> {
    Some(match op {
        BinOp::Lt(_) => "<=",
        BinOp::Le(_) => "<",
        BinOp::Gt(_) => ">=",
        BinOp::Ge(_) => ">",
        BinOp::And(_) => "||",
        BinOp::Or(_) => "&&",
        BinOp::Add(_) => "-",
        BinOp::Sub(_) => "+",
        BinOp::Mul(_) | BinOp::Rem(_) => "/",
        BinOp::Div(_) => "*",
        BinOp::BitAnd(_) => "|",
        BinOp::BitOr(_) => "&",
        BinOp::BitXor(_) => "|",
        BinOp::Shl(_) => ">>",
        BinOp::Shr(_) => "<<",
        BinOp::AddAssign(_) => "-=",
        BinOp::SubAssign(_) => "+=",
        BinOp::MulAssign(_) | BinOp::RemAssign(_) => "/=",
        BinOp::DivAssign(_) => "*=",
        BinOp::BitAndAssign(_) => "|=",
        BinOp::BitOrAssign(_) => "&=",
        BinOp::BitXorAssign(_) => "|=",
        BinOp::ShlAssign(_) => ">>=",
        BinOp::ShrAssign(_) => "<<=",
        _ => return None,
    })
}

fn other_method(name: &str) -> Option<&'static str> {
    Some(match name {
        "min" => "max",
        "max" => "min",
        "min_by_key" => "max_by_key",
        "max_by_key" => "min_by_key",
        "saturating_add" => "saturating_sub",
        "saturating_sub" => "saturating_add",
        "wrapping_add" => "wrapping_sub",
        "wrapping_sub" => "wrapping_add",
        _ => return None,
    })
}

/// Whether a statement of this expression can be left out: a call or an assignment.
fn can_be_skipped(expression: &Expr) -> bool {
    match expression {
        // A hint to the processor.
        Expr::Call(call) => !call
            .func
            .to_token_stream()
            .to_string()
            .starts_with("prefetch"),
        Expr::Assign(_) => true,
        // `queue.end();` ends a borrow, which only loom sees.
        Expr::MethodCall(call) if call.method == "end" => !matches!(*call.receiver, Expr::Path(_)),
        Expr::MethodCall(call) => !call.method.to_string().starts_with("assert_"),
        Expr::Binary(binary) => {
            let op = binary.op.to_token_stream().to_string();
            op.ends_with('=') && complement(&binary.op).is_none()
        }
        Expr::Try(tried) => can_be_skipped(&tried.expr),
        Expr::Unsafe(block) => match block.block.stmts.as_slice() {
            [Stmt::Expr(only, None)] => can_be_skipped(only),
            _ => false,
        },
        _ => false,
    }
}

/// Whether a condition binds names.
fn has_let(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        Expr::Paren(inner) => has_let(&inner.expr),
        _ => false,
    }
}

/// Whether a condition is that a fault is planted.
fn is_fault(condition: &Expr) -> bool {
    match condition {
        Expr::Binary(binary) => {
            matches!(binary.op, BinOp::And(_))
                && (is_fault(&binary.left) || is_fault(&binary.right))
        }
        Expr::Call(call) => asks_for_a_fault(call),
        _ => false,
    }
}

fn asks_for_a_fault(call: &syn::ExprCall) -> bool {
    call.func.to_token_stream().to_string().ends_with("fault")
}

/// Whether a condition is settled by the build or by a model: `cfg!(..)`, `fault(..)`.
fn is_switch(condition: &Expr) -> bool {
    match condition {
        Expr::Unary(unary) => is_switch(&unary.expr),
        Expr::Paren(inner) => is_switch(&inner.expr),
        Expr::Macro(called) => called.mac.path.is_ident("cfg"),
        Expr::Call(call) => asks_for_a_fault(call),
        _ => false,
    }
}
