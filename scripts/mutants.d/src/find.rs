//! Mutants of a file, as text edits.
//!
//! | operator | mutant |
//! |---|---|
//! | `if c`, match guard | `true`, `false` |
//! | `if let` | never taken |
//! | operand of `&&` / `\|\|` | `true` / `false` |
//! | `==`, `!=`; `matches!` that is not a condition itself | negated |
//! | `<`, `<=`, `>`, `>=` | with or without equality |
//! | `+`, `-` | exchanged |
//! | a statement: call, assignment | removed |
//! | an arm before `_` | removed |
//! | a match arm | returns the result of the next arm, if that binds nothing and is a plain value |
//! | the body of a function | returns a default of its type |
//!
//! An operand that is a chain of the same operator is not mutated itself, but its operands are. If two operators would make the same
//! change, only one of them does.
//!
//! These are never mutated, because no test of behavior can or should notice:
//!
//! | class | reason |
//! |---|---|
//! | `tracing` and `metrics` macros, with their arguments; functions and `if` blocks that contain nothing else, and calls of these | numbers and texts for operators; their names have a test of their own |
//! | `impl Display`, `Debug`, `Error` | texts |
//! | `extra_rounds` of a summary | a number that is only printed and measured |
//! | `debug_assert!` and similar | a check, not behavior; absent in releases |
//! | arguments of `with_capacity`, calls of `reserve` | hints about memory, without an effect on values |
//! | calls of `yield_now` | fairness between tasks, which a paused clock does not show |
//! | constants and statics | they cannot read a switch |

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context as _, Result};
use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, ReturnType, Stmt, Type};

#[derive(Debug, Clone)]
pub struct Mutant {
    /// Path below the root, with `/`.
    pub file: String,
    pub line: usize,
    pub function: String,
    /// Description of the change.
    pub does: String,
    /// The edits; `{}` stands for the mutant's number.
    pub edits: Vec<Edit>,
}

#[derive(Debug, Clone)]
pub struct Edit {
    /// Replaced bytes; empty for an insertion.
    pub range: Range<usize>,
    pub text: String,
    /// Whether the insertion ends a wrap, so that it comes before those that begin at the same place.
    pub closes: bool,
}

impl Mutant {
    /// A name that does not depend on other parts of the file.
    pub fn name(&self) -> String {
        format!("{} {}: {}", self.file, self.function, self.does)
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{} {}: {}",
            self.file, self.line, self.function, self.does
        )
    }
}

/// All mutants of the files with these path prefixes.
pub fn mutants(root: &Path, subjects: &[&str]) -> Result<Vec<Mutant>> {
    let mut files = Vec::new();
    for subject in subjects {
        collect(root, &root.join(subject), &mut files)?;
    }
    files.sort();
    let mut parsed = Vec::new();
    let mut reporting = Reporting::default();
    for file in files {
        let source = std::fs::read_to_string(root.join(&file)).with_context(|| file.clone())?;
        let syntax = syn::parse_file(&source).with_context(|| file.clone())?;
        reporting.visit_file(&syntax);
        parsed.push((file, source, syntax));
    }
    let mut all = Vec::new();
    for (file, source, syntax) in parsed {
        let mut finder = Finder {
            file,
            source: &source,
            reporting: &reporting,
            functions: Vec::new(),
            covered: BTreeSet::new(),
            found: Vec::new(),
        };
        finder.visit_file(&syntax);
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
    reporting: &'s Reporting,
    functions: Vec<String>,
    /// Ranges of expressions that are constant in some mutant. Negating them would be equivalent.
    covered: BTreeSet<(usize, usize)>,
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
        if text.chars().count() > 60 {
            text.chars().take(57).chain("...".chars()).collect()
        } else {
            text
        }
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

    /// Wraps the expression in other text.
    fn wrap(&mut self, expr: &impl Spanned, does: String, before: &str, after: &str) {
        let range = bytes(expr.span());
        let edits = vec![
            Edit {
                range: range.start..range.start,
                text: before.to_owned(),
                closes: false,
            },
            Edit {
                range: range.end..range.end,
                text: after.to_owned(),
                closes: true,
            },
        ];
        self.add(expr.span(), does, edits);
    }

    fn always(&mut self, expr: &Expr, value: bool) {
        let range = bytes(expr.span());
        self.covered.insert((range.start, range.end));
        let does = format!("`{}` is {value}", self.short(&range));
        if value {
            self.wrap(expr, does, "(evenkeel_model::mutation::on({}) || (", "))");
        } else {
            self.wrap(expr, does, "(!evenkeel_model::mutation::on({}) && (", "))");
        }
    }

    fn condition(&mut self, expr: &Expr) {
        if has_let(expr) {
            let range = bytes(expr.span());
            let does = format!("`{}` is never taken", self.short(&range));
            let edits = vec![Edit {
                range: range.end..range.end,
                text: " && !evenkeel_model::mutation::on({})".to_owned(),
                closes: true,
            }];
            self.add(expr.span(), does, edits);
            return;
        }
        self.always(expr, true);
        self.always(expr, false);
    }

    /// Mutates both operands: to true for `&&`, to false for `||`. The operands of a chain are those of its links.
    fn operands(&mut self, chain: &syn::ExprBinary) {
        for operand in [&chain.left, &chain.right] {
            let continues = matches!(&**operand, Expr::Binary(inner) if same(&inner.op, &chain.op));
            if !continues && !matches!(**operand, Expr::Let(_)) {
                self.always(operand, matches!(chain.op, BinOp::And(_)));
            }
        }
    }

    /// Arms that return the result of the next arm.
    fn exchanged(&mut self, arms: &[syn::Arm]) {
        for pair in arms.windows(2) {
            let [arm, next] = pair else { continue };
            let (own, other) = (bytes(arm.body.span()), bytes(next.body.span()));
            if next.guard.is_some()
                || binds(&next.pat)
                || !is_plain(&next.body)
                || self.short(&own) == self.short(&other)
                || other.len() > 60
            {
                continue;
            }
            // `{}` would be replaced by the mutant's number.
            let answer = self.short(&other).replace("{}", "()");
            let does = format!(
                "`{}` answers `{answer}`",
                self.short(&bytes(arm.pat.span()))
            );
            let edits = vec![
                Edit {
                    range: own.start..own.start,
                    text: format!("if evenkeel_model::mutation::on({{}}) {{ {answer} }} else {{ "),
                    closes: false,
                },
                Edit {
                    range: own.end..own.end,
                    text: " }".to_owned(),
                    closes: true,
                },
            ];
            self.add(arm.pat.span(), does, edits);
        }
    }

    /// Whether a statement belongs to a class that is never mutated.
    fn is_left_out(&self, expr: &Expr) -> bool {
        let range = bytes(expr.span());
        let text = self.text(&range);
        self.reporting.calls(expr)
            || text.contains("yield_now()")
            || matches!(expr, Expr::MethodCall(call) if call.method == "reserve")
            || matches!(expr, Expr::Assign(_) | Expr::Binary(_))
                && text
                    .split_whitespace()
                    .next()
                    .is_some_and(|place| place.ends_with("extra_rounds"))
    }

    fn body(&mut self, signature: &syn::Signature, block: &syn::Block) {
        if signature.constness.is_some() {
            let range = bytes(signature.constness.span());
            // Without `const` the function can read a switch. See `weave` for functions that must stay constant.
            self.found.push(Mutant {
                file: self.file.clone(),
                line: signature.span().start().line,
                function: signature.ident.to_string(),
                does: UNCONST.to_owned(),
                edits: vec![Edit {
                    range: range.start..range.end,
                    text: String::new(),
                    closes: false,
                }],
            });
        }
        if let [only] = &block.stmts[..] {
            let range = bytes(only.span());
            self.covered.insert((range.start, range.end));
        }
        let open = bytes(block.brace_token.span.open()).end;
        for value in defaults(&signature.output) {
            if block.stmts.len() == 1 && self.text(&bytes(block.stmts[0].span())) == value {
                continue;
            }
            let text = format!(" if evenkeel_model::mutation::on({{}}) {{ return {value}; }} ");
            let edits = vec![Edit {
                range: open..open,
                text,
                closes: true,
            }];
            self.add(signature.span(), format!("returns {value}"), edits);
        }
    }
}

/// The pseudo-mutant that removes `const` from a function. The mutants in its body need it.
pub const UNCONST: &str = "is not const";

fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

fn same(one: &BinOp, other: &BinOp) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(other)
}

/// Whether a pattern binds parts of its value.
fn binds(pattern: &syn::Pat) -> bool {
    #[derive(Default)]
    struct Names(bool);
    impl Visit<'_> for Names {
        fn visit_pat_ident(&mut self, pattern: &syn::PatIdent) {
            self.0 |= pattern
                .ident
                .to_string()
                .starts_with(|first: char| first.is_lowercase());
        }
    }
    let mut names = Names::default();
    names.visit_pat(pattern);
    names.0
}

/// A value that is valid anywhere: names, literals, and calls on these.
fn is_plain(expr: &Expr) -> bool {
    match expr {
        Expr::Path(_) | Expr::Lit(_) | Expr::Continue(_) => true,
        Expr::Call(call) => is_plain(&call.func) && call.args.iter().all(is_plain),
        Expr::Tuple(tuple) => tuple.elems.iter().all(is_plain),
        Expr::Return(inner) => inner.expr.as_deref().is_none_or(is_plain),
        Expr::Block(block) => block.block.stmts.is_empty(),
        _ => false,
    }
}

/// Functions that only report.
#[derive(Default)]
struct Reporting(BTreeSet<String>);

impl Reporting {
    fn calls(&self, expr: &Expr) -> bool {
        match expr {
            Expr::MethodCall(call) => {
                self.0.contains(&call.method.to_string())
                    || matches!(&*call.receiver, Expr::Macro(inner) if reports(&inner.mac))
            }
            Expr::Call(call) => {
                matches!(&*call.func, Expr::Path(path) if path.path.segments.last().is_some_and(|last| self.0.contains(&last.ident.to_string())))
            }
            _ => false,
        }
    }

    /// Whether a block only reports.
    fn is(&self, block: &syn::Block) -> bool {
        let mut speaks = false;
        let only = block.stmts.iter().all(|stmt| match stmt {
            Stmt::Macro(stmt) => {
                speaks |= reports(&stmt.mac);
                reports(&stmt.mac)
            }
            Stmt::Expr(Expr::Macro(expr), _) => {
                speaks |= reports(&expr.mac);
                reports(&expr.mac)
            }
            Stmt::Expr(expr, _) => {
                speaks |= self.calls(expr);
                self.calls(expr)
            }
            Stmt::Local(local) => local.init.as_ref().is_none_or(|init| is_calm(&init.expr)),
            Stmt::Item(_) => false,
        });
        speaks && only
    }
}

impl<'ast> Visit<'ast> for Reporting {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if self.is(&item.block) {
            self.0.insert(item.sig.ident.to_string());
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if self.is(&item.block) {
            self.0.insert(item.sig.ident.to_string());
        }
    }
}

/// An expression without `await` and early return.
fn is_calm(expr: &Expr) -> bool {
    struct NoExit(bool);
    impl Visit<'_> for NoExit {
        fn visit_expr_await(&mut self, _: &syn::ExprAwait) {
            self.0 = false;
        }
        fn visit_expr_try(&mut self, _: &syn::ExprTry) {
            self.0 = false;
        }
    }
    let mut calm = NoExit(true);
    calm.visit_expr(expr);
    calm.0
}

/// Whether a macro reports to operators.
fn reports(mac: &syn::Macro) -> bool {
    let words: Vec<String> = mac
        .path
        .segments
        .iter()
        .map(|segment| segment.ident.to_string())
        .collect();
    let last = words.last().map_or("", String::as_str);
    words
        .first()
        .is_some_and(|first| first == "tracing" || first == "metrics")
        || [
            "counter",
            "gauge",
            "histogram",
            "debug_assert",
            "debug_assert_eq",
            "debug_assert_ne",
        ]
        .contains(&last)
}

/// Default values for a function of this type.
fn defaults(output: &ReturnType) -> Vec<&'static str> {
    match output {
        ReturnType::Default => vec!["()"],
        ReturnType::Type(_, kind) => of_type(kind),
    }
}

fn of_type(kind: &Type) -> Vec<&'static str> {
    let Type::Path(path) = kind else {
        return Vec::new();
    };
    let Some(last) = path.path.segments.last() else {
        return Vec::new();
    };
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
            Some(Type::Path(inner)) => match inner
                .path
                .segments
                .last()
                .map(|last| last.ident.to_string())
                .as_deref()
            {
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
            || path
                .segments
                .last()
                .is_some_and(|last| last.ident == "test")
            || path.is_ident("cfg")
                && attribute
                    .parse_args::<syn::Ident>()
                    .is_ok_and(|word| word == "test")
    })
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if is_test(&item.attrs) || self.reporting.is(&item.block) {
            return;
        }
        self.functions.push(item.sig.ident.to_string());
        self.body(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
        self.functions.pop();
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let shown = item
            .trait_
            .as_ref()
            .and_then(|(_, path, _)| path.segments.last())
            .map(|last| last.ident.to_string());
        if is_test(&item.attrs) || matches!(shown.as_deref(), Some("Display" | "Debug" | "Error")) {
            return;
        }
        let name = self.text(&bytes(item.self_ty.span())).to_owned();
        self.functions.push(name);
        visit::visit_item_impl(self, item);
        self.functions.pop();
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if is_test(&item.attrs) || self.reporting.is(&item.block) {
            return;
        }
        self.functions.push(item.sig.ident.to_string());
        self.body(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
        self.functions.pop();
    }

    // Constants cannot read a switch.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_type(&mut self, _: &'ast Type) {}

    fn visit_expr_if(&mut self, expr: &'ast syn::ExprIf) {
        if expr.else_branch.is_none() && self.reporting.is(&expr.then_branch) {
            return;
        }
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
        self.exchanged(&expr.arms);
        let last = expr
            .arms
            .last()
            .is_some_and(|arm| matches!(arm.pat, syn::Pat::Wild(_)) && arm.guard.is_none());
        if last {
            for arm in expr
                .arms
                .iter()
                .filter(|arm| arm.guard.is_none() && !matches!(arm.pat, syn::Pat::Wild(_)))
            {
                let range = bytes(arm.pat.span());
                let does = format!("without the arm `{}`", self.short(&range));
                let edits = vec![Edit {
                    range: range.end..range.end,
                    text: " if !evenkeel_model::mutation::on({})".to_owned(),
                    closes: true,
                }];
                self.add(arm.pat.span(), does, edits);
            }
        }
        visit::visit_expr_match(self, expr);
    }

    fn visit_expr_binary(&mut self, expr: &'ast syn::ExprBinary) {
        let range = bytes(expr.span());
        match &expr.op {
            // The whole chain, visited from its outermost link.
            BinOp::And(_) | BinOp::Or(_) => self.operands(expr),
            BinOp::Eq(_) | BinOp::Ne(_) => {
                let does = format!("not `{}`", self.short(&range));
                self.wrap(expr, does, "((", ") ^ evenkeel_model::mutation::on({}))");
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
                if !other.is_empty() {
                    let borrowed = if matches!(op, BinOp::Add(_) | BinOp::Sub(_)) {
                        ""
                    } else {
                        "&"
                    };
                    let own = bytes(op.span());
                    let sign = self.text(&own).to_owned();
                    let does = format!("`{}` with {other}", self.short(&range));
                    let edits = vec![
                        Edit {
                            range: range.start..range.start,
                            text: format!("(match ({borrowed}("),
                            closes: false,
                        },
                        Edit {
                            range: own,
                            text: format!("), {borrowed}("),
                            closes: false,
                        },
                        Edit {
                            range: range.end..range.end,
                            text: format!(
                                ")) {{ (l, r) => if evenkeel_model::mutation::on({{}}) {{ l {other} r }} else {{ l {sign} r }} }})"
                            ),
                            closes: true,
                        },
                    ];
                    self.add(expr.span(), does, edits);
                }
            }
        }
        visit::visit_expr_binary(self, expr);
    }

    fn visit_expr_macro(&mut self, expr: &'ast syn::ExprMacro) {
        let range = bytes(expr.span());
        if expr.mac.path.is_ident("matches") && !self.covered.contains(&(range.start, range.end)) {
            let does = format!("not `{}`", self.short(&range));
            self.wrap(expr, does, "((", ") ^ evenkeel_model::mutation::on({}))");
        }
    }

    fn visit_expr_call(&mut self, expr: &'ast syn::ExprCall) {
        let range = bytes(expr.func.span());
        if !self.text(&range).ends_with("with_capacity") {
            visit::visit_expr_call(self, expr);
        }
    }

    fn visit_stmt(&mut self, stmt: &'ast Stmt) {
        if let Stmt::Expr(expr, Some(_)) = stmt
            && is_effect(expr)
            && !self.is_left_out(expr)
        {
            let range = bytes(stmt.span());
            let does = format!("without `{}`", self.short(&range));
            self.wrap(stmt, does, "if !evenkeel_model::mutation::on({}) { ", " }");
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
            BinOp::AddAssign(_)
                | BinOp::SubAssign(_)
                | BinOp::BitOrAssign(_)
                | BinOp::BitAndAssign(_)
                | BinOp::MulAssign(_)
        ),
        _ => false,
    }
}
