//! Mutants of a file, as text edits.
//!
//! | operator | mutant |
//! |---|---|
//! | `if c`, match guard | `true`, `false` |
//! | operand of `&&` / `\|\|` | `true` / `false` |
//! | `==`, `!=` | negated |
//! | `<`, `<=`, `>`, `>=` | with or without equality |
//! | `+`, `-` | exchanged |
//! | a statement: call, assignment | left out |
//! | an arm before `_` | left out |
//! | the body of a function | returns a default of its type |

use std::fmt;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context as _, Result};
use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, ReturnType, Stmt, Type};

/// One mutant.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// Path below the root, with `/`.
    pub file: String,
    /// Line of the original.
    pub line: usize,
    /// Function it is in.
    pub function: String,
    /// What it does.
    pub does: String,
    /// How the text changes; `{}` stands for the mutant's number.
    pub edits: Vec<Edit>,
}

/// A change of the text.
#[derive(Debug, Clone)]
pub struct Edit {
    /// Replaced bytes; empty for an insertion.
    pub range: Range<usize>,
    /// Text in their place.
    pub text: String,
    /// Whether the insertion ends a wrap, and so comes before those that begin at the same place.
    pub closes: bool,
}

impl Mutant {
    /// Where it is counted.
    pub fn room(&self) -> &str {
        let known = ["src/reconcile", "src/worker/decide.rs", "src/adapters/retry", "src/adapters/group", "src/adapters/embedded"];
        known.into_iter().find(|room| self.file.starts_with(room)).unwrap_or(&self.file)
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} {}: {}", self.file, self.line, self.function, self.does)
    }
}

/// Every mutant of the files under these prefixes.
pub fn mutants(root: &Path, subjects: &[&str]) -> Result<Vec<Mutant>> {
    let mut files = Vec::new();
    for subject in subjects {
        collect(root, &root.join(subject), &mut files)?;
    }
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let source = std::fs::read_to_string(root.join(&file)).with_context(|| file.clone())?;
        let parsed = syn::parse_file(&source).with_context(|| file.clone())?;
        let mut finder = Finder { file, source: &source, functions: Vec::new(), found: Vec::new() };
        finder.visit_file(&parsed);
        all.append(&mut finder.found);
    }
    Ok(all)
}

fn collect(root: &Path, at: &Path, files: &mut Vec<String>) -> Result<()> {
    if at.is_dir() {
        for entry in std::fs::read_dir(at)? {
            collect(root, &entry?.path(), files)?;
        }
    } else if at.extension().is_some_and(|ending| ending == "rs") {
        let path = at.strip_prefix(root)?.to_string_lossy().replace('\\', "/");
        if !path.ends_with("/tests.rs") && !path.contains("/tests/") {
            files.push(path);
        }
    }
    Ok(())
}

struct Finder<'s> {
    file: String,
    source: &'s str,
    functions: Vec<String>,
    found: Vec<Mutant>,
}

fn bytes(span: Span) -> Range<usize> {
    span.byte_range()
}

impl Finder<'_> {
    fn text(&self, range: &Range<usize>) -> &str {
        self.source.get(range.clone()).unwrap_or("")
    }

    fn short(&self, range: &Range<usize>) -> String {
        let text: Vec<&str> = self.text(range).split_whitespace().collect();
        let text = text.join(" ");
        if text.chars().count() > 60 { text.chars().take(57).chain("...".chars()).collect() } else { text }
    }

    fn add(&mut self, at: Span, does: String, edits: Vec<Edit>) {
        self.found.push(Mutant {
            file: self.file.clone(),
            line: at.start().line,
            function: self.functions.join("::"),
            does,
            edits,
        });
    }

    /// The expression within other text.
    fn wrap(&mut self, expr: &impl Spanned, does: String, before: &str, after: &str) {
        let range = bytes(expr.span());
        let edits = vec![
            Edit { range: range.start..range.start, text: before.to_owned(), closes: false },
            Edit { range: range.end..range.end, text: after.to_owned(), closes: true },
        ];
        self.add(expr.span(), does, edits);
    }

    fn always(&mut self, expr: &Expr, value: bool) {
        let range = bytes(expr.span());
        // Bugs that unit tests plant are constants in every other build.
        if self.text(&range).contains("planted(") {
            return;
        }
        let does = format!("`{}` is {value}", self.short(&range));
        if value {
            self.wrap(expr, does, "(crate::mutation::on({}) || (", "))");
        } else {
            self.wrap(expr, does, "(!crate::mutation::on({}) && (", "))");
        }
    }

    fn condition(&mut self, expr: &Expr) {
        if has_let(expr) {
            return;
        }
        self.always(expr, true);
        self.always(expr, false);
    }

    fn operands(&mut self, expr: &Expr, and: bool) {
        match expr {
            Expr::Binary(binary) if and && matches!(binary.op, BinOp::And(_)) || !and && is_or(expr) => {
                let Expr::Binary(binary) = expr else { return };
                let _ = binary;
                self.operands(&binary.left, and);
                self.operands(&binary.right, and);
            }
            Expr::Let(_) => {}
            other => self.always(other, and),
        }
    }

    fn body(&mut self, signature: &syn::Signature, block: &syn::Block) {
        if signature.constness.is_some() {
            let range = bytes(signature.constness.span());
            // Without `const` a switch can be asked; see `weave` for those that must stay constant.
            self.found.push(Mutant {
                file: self.file.clone(),
                line: signature.span().start().line,
                function: signature.ident.to_string(),
                does: UNCONST.to_owned(),
                edits: vec![Edit { range: range.start..range.end, text: String::new(), closes: false }],
            });
        }
        let open = bytes(block.brace_token.span.open()).end;
        for value in defaults(&signature.output) {
            if block.stmts.len() == 1 && self.text(&bytes(block.stmts[0].span())) == value {
                continue;
            }
            let text = format!(" if crate::mutation::on({{}}) {{ return {value}; }} ");
            let edits = vec![Edit { range: open..open, text, closes: true }];
            self.add(signature.span(), format!("returns {value}"), edits);
        }
    }
}

/// What stands for a `const fn` that loses its `const`: no mutant, but needed by those in its body.
pub const UNCONST: &str = "is not const";

fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

fn is_or(expr: &Expr) -> bool {
    matches!(expr, Expr::Binary(binary) if matches!(binary.op, BinOp::Or(_)))
}

/// Values that a function of this type may return in place of its own.
fn defaults(output: &ReturnType) -> Vec<&'static str> {
    match output {
        ReturnType::Default => vec!["()"],
        ReturnType::Type(_, kind) => of_type(kind),
    }
}

fn of_type(kind: &Type) -> Vec<&'static str> {
    let Type::Path(path) = kind else { return Vec::new() };
    let Some(last) = path.path.segments.last() else { return Vec::new() };
    let argument = || match &last.arguments {
        syn::PathArguments::AngleBracketed(arguments) => match arguments.args.first() {
            Some(syn::GenericArgument::Type(kind)) => Some(kind),
            _ => None,
        },
        _ => None,
    };
    match last.ident.to_string().as_str() {
        "bool" => vec!["true", "false"],
        "Option" => vec!["None"],
        "Vec" => vec!["Vec::new()"],
        "String" => vec!["String::new()"],
        "Duration" => vec!["std::time::Duration::ZERO"],
        "u32" | "u64" | "usize" => vec!["0"],
        "Result" => match argument() {
            Some(Type::Tuple(tuple)) if tuple.elems.is_empty() => vec!["Ok(())"],
            Some(Type::Path(inner)) => match inner.path.segments.last().map(|last| last.ident.to_string()).as_deref() {
                Some("bool") => vec!["Ok(true)", "Ok(false)"],
                Some("Option") => vec!["Ok(None)"],
                Some("Vec") => vec!["Ok(Vec::new())"],
                _ => Vec::new(),
            },
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        path.is_ident("test")
            || path.segments.last().is_some_and(|last| last.ident == "test")
            || path.is_ident("cfg") && attribute.parse_args::<syn::Ident>().is_ok_and(|word| word == "test")
    })
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if is_test(&item.attrs) {
            return;
        }
        self.functions.push(item.sig.ident.to_string());
        self.body(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
        self.functions.pop();
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let shown = item.trait_.as_ref().and_then(|(_, path, _)| path.segments.last()).map(|last| last.ident.to_string());
        if is_test(&item.attrs) || matches!(shown.as_deref(), Some("Display" | "Debug" | "Error")) {
            return;
        }
        let name = self.text(&bytes(item.self_ty.span())).to_owned();
        self.functions.push(name);
        visit::visit_item_impl(self, item);
        self.functions.pop();
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if is_test(&item.attrs) {
            return;
        }
        self.functions.push(item.sig.ident.to_string());
        self.body(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
        self.functions.pop();
    }

    // Constants cannot ask a switch.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_type(&mut self, _: &'ast Type) {}

    fn visit_expr_if(&mut self, expr: &'ast syn::ExprIf) {
        self.condition(&expr.cond);
        visit::visit_expr_if(self, expr);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some((_, guard)) = &arm.guard {
            self.condition(guard);
        }
        visit::visit_arm(self, arm);
    }

    fn visit_expr_match(&mut self, expr: &'ast syn::ExprMatch) {
        let last = expr.arms.last().is_some_and(|arm| matches!(arm.pat, syn::Pat::Wild(_)) && arm.guard.is_none());
        if last {
            for arm in expr.arms.iter().filter(|arm| arm.guard.is_none() && !matches!(arm.pat, syn::Pat::Wild(_))) {
                let range = bytes(arm.pat.span());
                let does = format!("without the arm `{}`", self.short(&range));
                let edits = vec![Edit { range: range.end..range.end, text: " if !crate::mutation::on({})".to_owned(), closes: true }];
                self.add(arm.pat.span(), does, edits);
            }
        }
        visit::visit_expr_match(self, expr);
    }

    fn visit_expr_binary(&mut self, expr: &'ast syn::ExprBinary) {
        let range = bytes(expr.span());
        let planted = self.text(&range).contains("planted(");
        match &expr.op {
            BinOp::And(_) => {
                self.operands(&expr.left, true);
                self.operands(&expr.right, true);
            }
            BinOp::Or(_) => {
                self.operands(&expr.left, false);
                self.operands(&expr.right, false);
            }
            BinOp::Eq(_) | BinOp::Ne(_) if !planted => {
                let does = format!("not `{}`", self.short(&range));
                self.wrap(expr, does, "((", ") ^ crate::mutation::on({}))");
            }
            op => {
                let other = match op {
                    BinOp::Lt(_) => "<=",
                    BinOp::Le(_) => "<",
                    BinOp::Gt(_) => ">=",
                    BinOp::Ge(_) => ">",
                    BinOp::Add(_) => "-",
                    BinOp::Sub(_) => "+",
                    _ => "",
                };
                if !other.is_empty() && !planted {
                    let borrowed = if matches!(op, BinOp::Add(_) | BinOp::Sub(_)) { "" } else { "&" };
                    let own = bytes(op.span());
                    let sign = self.text(&own).to_owned();
                    let does = format!("`{}` with {other}", self.short(&range));
                    let edits = vec![
                        Edit { range: range.start..range.start, text: format!("(match ({borrowed}("), closes: false },
                        Edit { range: own, text: format!("), {borrowed}("), closes: false },
                        Edit {
                            range: range.end..range.end,
                            text: format!(")) {{ (l, r) => if crate::mutation::on({{}}) {{ l {other} r }} else {{ l {sign} r }} }})"),
                            closes: true,
                        },
                    ];
                    self.add(expr.span(), does, edits);
                }
            }
        }
        // The operands of a chain have been seen by its outermost operator.
        visit::visit_expr_binary(self, expr);
    }

    fn visit_stmt(&mut self, stmt: &'ast Stmt) {
        if let Stmt::Expr(expr, Some(_)) = stmt
            && is_effect(expr)
        {
            let range = bytes(stmt.span());
            let does = format!("without `{}`", self.short(&range));
            self.wrap(stmt, does, "if !crate::mutation::on({}) { ", " }");
        }
        visit::visit_stmt(self, stmt);
    }
}

fn is_effect(expr: &Expr) -> bool {
    match expr {
        Expr::Call(_) | Expr::MethodCall(_) | Expr::Assign(_) => true,
        Expr::Await(inner) => is_effect(&inner.base),
        Expr::Try(inner) => is_effect(&inner.expr),
        Expr::Binary(binary) => matches!(
            binary.op,
            BinOp::AddAssign(_) | BinOp::SubAssign(_) | BinOp::BitOrAssign(_) | BinOp::BitAndAssign(_) | BinOp::MulAssign(_)
        ),
        _ => false,
    }
}
