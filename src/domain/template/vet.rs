//! What a template may contain, what it reads, and the tree as it is compiled.

use std::collections::{BTreeMap, BTreeSet};

use minijinja::{
    Value,
    machinery::{
        Span,
        ast::{
            BinOp, BinOpKind, Call, CallArg, Compare, CompareOp, Const, EmitExpr, Expr, Filter,
            FilterBlock, ForLoop, GetAttr, GetItem, IfCond, IfExpr, List, Map, Set, SetBlock,
            Slice, Spanned, Stmt, Template, Test, Tuple, UnaryOp, UnaryOpKind, Var, WithBlock,
        },
    },
};

use super::{
    Fault, Reads,
    sandbox::{FILTERS, ITEM, KEEP, SORT, SORTING, TESTS, TIMES, USE},
};

/// A fault in a line.
pub(super) fn at(line: u16, message: impl Into<String>) -> Fault {
    Fault {
        line: Some(line.into()),
        message: message.into(),
    }
}

/// Checks a tree, and rewrites it so that the bounds are kept.
pub(super) fn vet<'a>(tree: &Stmt<'a>) -> Result<(Stmt<'a>, BTreeMap<&'a str, Reads>), Fault> {
    let mut vet = Vet::default();
    let tree = vet.stmt(tree)?;
    Ok((tree, vet.reads))
}

/// The walk.
#[derive(Default)]
struct Vet<'a> {
    reads: BTreeMap<&'a str, Reads>,
    /// What the template has set itself by here.
    known: BTreeSet<&'a str>,
}

type Vetted<T> = Result<T, Fault>;

impl<'a> Vet<'a> {
    fn body(&mut self, body: &[Stmt<'a>]) -> Vetted<Vec<Stmt<'a>>> {
        body.iter().map(|stmt| self.stmt(stmt)).collect()
    }

    /// A body whose own settings end with it. Answers what was known at its end.
    fn scope(&mut self, body: &[Stmt<'a>]) -> Vetted<(Vec<Stmt<'a>>, BTreeSet<&'a str>)> {
        let before = self.known.clone();
        let body = self.body(body)?;
        Ok((body, std::mem::replace(&mut self.known, before)))
    }

    fn stmt(&mut self, stmt: &Stmt<'a>) -> Vetted<Stmt<'a>> {
        Ok(match stmt {
            Stmt::Template(s) => {
                let children = self.body(&s.children)?;
                Stmt::Template(Spanned::new(Template { children }, s.span()))
            }
            // Text is written as a value, so that one counter sees all that is written.
            Stmt::EmitRaw(s) => {
                let value = Value::from(s.raw);
                let expr = Expr::Const(Spanned::new(Const { value }, s.span()));
                Stmt::EmitExpr(Spanned::new(EmitExpr { expr }, s.span()))
            }
            Stmt::EmitExpr(s) => {
                let expr = self.expr(&s.expr)?;
                Stmt::EmitExpr(Spanned::new(EmitExpr { expr }, s.span()))
            }
            Stmt::ForLoop(s) => {
                if s.recursive {
                    return Err(refused(s.span(), "recursive loops are"));
                }
                let iter = self.expr(&s.iter)?;
                let before = self.known.clone();
                let target = self.target(&s.target)?;
                self.known.insert("loop");
                let filter_expr = self.maybe(s.filter_expr.as_ref())?;
                let (body, _) = self.scope(&s.body)?;
                self.known = before;
                let (else_body, _) = self.scope(&s.else_body)?;
                let node = ForLoop {
                    target,
                    iter,
                    filter_expr,
                    recursive: false,
                    body,
                    else_body,
                };
                Stmt::ForLoop(Spanned::new(node, s.span()))
            }
            Stmt::IfCond(s) => {
                let expr = self.expr(&s.expr)?;
                let (true_body, one) = self.scope(&s.true_body)?;
                let (false_body, other) = self.scope(&s.false_body)?;
                // What both ways set is set.
                self.known.extend(one.intersection(&other));
                let node = IfCond {
                    expr,
                    true_body,
                    false_body,
                };
                Stmt::IfCond(Spanned::new(node, s.span()))
            }
            Stmt::WithBlock(s) => {
                let before = self.known.clone();
                let mut assignments = Vec::new();
                for (target, value) in &s.assignments {
                    let value = self.expr(value)?;
                    assignments.push((self.target(target)?, value));
                }
                let body = self.body(&s.body)?;
                self.known = before;
                Stmt::WithBlock(Spanned::new(WithBlock { assignments, body }, s.span()))
            }
            Stmt::Set(s) => {
                let expr = self.expr(&s.expr)?;
                let target = self.target(&s.target)?;
                Stmt::Set(Spanned::new(Set { target, expr }, s.span()))
            }
            Stmt::SetBlock(s) => {
                let (body, _) = self.scope(&s.body)?;
                let filter = self.maybe(s.filter.as_ref())?;
                let target = self.target(&s.target)?;
                let node = SetBlock {
                    target,
                    filter,
                    body,
                };
                Stmt::SetBlock(Spanned::new(node, s.span()))
            }
            Stmt::FilterBlock(s) => {
                let filter = self.expr(&s.filter)?;
                let (body, _) = self.scope(&s.body)?;
                Stmt::FilterBlock(Spanned::new(FilterBlock { filter, body }, s.span()))
            }
            Stmt::AutoEscape(s) => return Err(refused(s.span(), "autoescape is")),
            Stmt::Do(s) => return Err(refused(s.span(), "do is")),
        })
    }

    /// What is set: a name, or names.
    fn target(&mut self, target: &Expr<'a>) -> Vetted<Expr<'a>> {
        let all = |vet: &mut Self, items: &[Expr<'a>]| -> Vetted<Vec<Expr<'a>>> {
            items.iter().map(|item| vet.target(item)).collect()
        };
        Ok(match target {
            Expr::Var(e) => {
                self.known.insert(e.id);
                Expr::Var(Spanned::new(Var { id: e.id }, e.span()))
            }
            Expr::List(e) => {
                let items = all(self, &e.items)?;
                Expr::List(Spanned::new(List { items }, e.span()))
            }
            Expr::Tuple(e) => {
                let items = all(self, &e.items)?;
                Expr::Tuple(Spanned::new(Tuple { items }, e.span()))
            }
            other => return Err(refused(other.span(), "setting anything but a name is")),
        })
    }

    fn maybe(&mut self, expr: Option<&Expr<'a>>) -> Vetted<Option<Expr<'a>>> {
        expr.map(|expr| self.expr(expr)).transpose()
    }

    fn read(&mut self, name: &'a str, span: Span, optional: bool) {
        if !self.known.contains(name) {
            let reads = self.reads.entry(name).or_default();
            reads.lines.push(span.start_line.into());
            reads.optional |= optional;
        }
    }

    fn expr(&mut self, expr: &Expr<'a>) -> Vetted<Expr<'a>> {
        Ok(match expr {
            Expr::Var(e) => {
                self.read(e.id, e.span(), false);
                Expr::Var(Spanned::new(Var { id: e.id }, e.span()))
            }
            Expr::Const(e) => {
                let value = e.value.clone();
                Expr::Const(Spanned::new(Const { value }, e.span()))
            }
            Expr::Slice(e) => {
                if e.step.as_ref().is_some_and(|step| !none(step)) {
                    return Err(refused(e.span(), "a slice with a step is"));
                }
                let node = Slice {
                    expr: self.used(&e.expr, USE)?,
                    start: self.maybe(e.start.as_ref())?,
                    stop: self.maybe(e.stop.as_ref())?,
                    step: None,
                };
                wrap(KEEP, Expr::Slice(Spanned::new(node, e.span())))
            }
            Expr::UnaryOp(e) => {
                let node = UnaryOp {
                    op: match e.op {
                        UnaryOpKind::Not => UnaryOpKind::Not,
                        UnaryOpKind::Neg => UnaryOpKind::Neg,
                    },
                    expr: self.expr(&e.expr)?,
                };
                Expr::UnaryOp(Spanned::new(node, e.span()))
            }
            Expr::BinOp(e) => self.operation(e)?,
            Expr::Compare(e) => {
                let first = self.used(&e.expr, USE)?;
                let ops = e.ops.iter().map(|op| {
                    let expr = self.used(&op.expr, USE)?;
                    Ok(CompareOp { op: op.op, expr })
                });
                let ops = ops.collect::<Vetted<_>>()?;
                Expr::Compare(Spanned::new(Compare { expr: first, ops }, e.span()))
            }
            Expr::IfExpr(e) => {
                let node = IfExpr {
                    test_expr: self.expr(&e.test_expr)?,
                    true_expr: self.expr(&e.true_expr)?,
                    false_expr: self.maybe(e.false_expr.as_ref())?,
                };
                Expr::IfExpr(Spanned::new(node, e.span()))
            }
            Expr::Filter(e) => self.filter(e)?,
            Expr::Test(e) => self.test(e)?,
            Expr::GetAttr(e) => {
                let node = GetAttr {
                    expr: self.expr(&e.expr)?,
                    name: e.name,
                };
                Expr::GetAttr(Spanned::new(node, e.span()))
            }
            Expr::GetItem(e) => {
                let node = GetItem {
                    expr: wrap(ITEM, self.expr(&e.expr)?),
                    subscript_expr: self.used(&e.subscript_expr, USE)?,
                };
                Expr::GetItem(Spanned::new(node, e.span()))
            }
            Expr::Call(e) => {
                let Expr::Var(name) = &e.expr else {
                    return Err(refused(e.span(), "calling anything but range() is"));
                };
                if name.id != "range" || self.known.contains("range") {
                    return Err(refused(e.span(), "calling anything but range() is"));
                }
                let node = Call {
                    expr: Expr::Var(Spanned::new(Var { id: name.id }, name.span())),
                    args: self.args(&e.args, e.span(), USE)?,
                };
                wrap(KEEP, Expr::Call(Spanned::new(node, e.span())))
            }
            Expr::List(e) => {
                let items = self.all(&e.items)?;
                wrap(KEEP, Expr::List(Spanned::new(List { items }, e.span())))
            }
            Expr::Tuple(e) => {
                let items = self.all(&e.items)?;
                wrap(KEEP, Expr::Tuple(Spanned::new(Tuple { items }, e.span())))
            }
            Expr::Map(e) => {
                let keys = e.keys.iter().map(|key| self.used(key, USE));
                let keys = keys.collect::<Vetted<_>>()?;
                let values = self.all(&e.values)?;
                wrap(
                    KEEP,
                    Expr::Map(Spanned::new(Map { keys, values }, e.span())),
                )
            }
        })
    }

    fn all(&mut self, items: &[Expr<'a>]) -> Vetted<Vec<Expr<'a>>> {
        items.iter().map(|item| self.used(item, USE)).collect()
    }

    /// An operand, paid for by `how` when it is computed.
    fn used(&mut self, expr: &Expr<'a>, how: &'static str) -> Vetted<Expr<'a>> {
        let vetted = self.expr(expr)?;
        Ok(match vetted {
            constant @ Expr::Const(_) => constant,
            other => wrap(how, other),
        })
    }

    fn operation(&mut self, e: &Spanned<BinOp<'a>>) -> Vetted<Expr<'a>> {
        use BinOpKind::{Add, Concat, Mul, ScAnd, ScOr};
        let span = e.span();
        if matches!(e.op, ScAnd | ScOr) {
            let (left, right) = (self.expr(&e.left)?, self.expr(&e.right)?);
            let node = BinOp {
                op: e.op,
                left,
                right,
            };
            return Ok(Expr::BinOp(Spanned::new(node, span)));
        }
        let (left, right) = (self.used(&e.left, USE)?, self.used(&e.right, USE)?);
        if matches!(e.op, Mul) {
            let node = Filter {
                name: TIMES,
                expr: Some(left),
                args: vec![CallArg::Pos(right)],
            };
            return Ok(wrap(KEEP, Expr::Filter(Spanned::new(node, span))));
        }
        let node = BinOp {
            op: e.op,
            left,
            right,
        };
        let node = Expr::BinOp(Spanned::new(node, span));
        Ok(if matches!(e.op, Add | Concat) {
            wrap(KEEP, node)
        } else {
            node
        })
    }

    fn filter(&mut self, e: &Spanned<Filter<'a>>) -> Vetted<Expr<'a>> {
        if !FILTERS.contains(&e.name) {
            let names = FILTERS.join(", ");
            let message = format!(
                "{} is not a filter of templates; these are: {names}",
                e.name
            );
            return Err(at(e.span().start_line, message));
        }
        let asks = matches!(e.name, "default" | "d");
        let how = if SORTING.contains(&e.name) { SORT } else { USE };
        let expr = match &e.expr {
            // The text of a block.
            None => wrap_option(how, None, e.span()),
            Some(Expr::Var(var)) if asks => {
                self.read(var.id, var.span(), true);
                Expr::Var(Spanned::new(Var { id: var.id }, var.span()))
            }
            Some(expr) if asks => self.expr(expr)?,
            Some(expr) => self.used(expr, how)?,
        };
        let node = Filter {
            name: e.name,
            expr: Some(expr),
            args: self.args(&e.args, e.span(), USE)?,
        };
        Ok(wrap(KEEP, Expr::Filter(Spanned::new(node, e.span()))))
    }

    fn test(&mut self, e: &Spanned<Test<'a>>) -> Vetted<Expr<'a>> {
        if !TESTS.contains(&e.name) {
            let names = TESTS.join(", ");
            let message = format!("{} is not a test of templates; these are: {names}", e.name);
            return Err(at(e.span().start_line, message));
        }
        let asks = matches!(e.name, "defined" | "undefined");
        let expr = match &e.expr {
            Expr::Var(var) if asks => {
                self.read(var.id, var.span(), true);
                Expr::Var(Spanned::new(Var { id: var.id }, var.span()))
            }
            expr if asks => self.expr(expr)?,
            expr => self.used(expr, USE)?,
        };
        let node = Test {
            name: e.name,
            expr,
            args: self.args(&e.args, e.span(), USE)?,
        };
        Ok(Expr::Test(Spanned::new(node, e.span())))
    }

    fn args(
        &mut self,
        args: &[CallArg<'a>],
        span: Span,
        how: &'static str,
    ) -> Vetted<Vec<CallArg<'a>>> {
        let arg = |arg: &CallArg<'a>| {
            Ok(match arg {
                CallArg::Pos(expr) => CallArg::Pos(self.used(expr, how)?),
                CallArg::Kwarg(name, expr) => CallArg::Kwarg(name, self.used(expr, how)?),
                CallArg::PosSplat(_) | CallArg::KwargSplat(_) => {
                    return Err(refused(span, "unpacked arguments are"));
                }
            })
        };
        args.iter().map(arg).collect()
    }
}

fn none(expr: &Expr<'_>) -> bool {
    matches!(expr, Expr::Const(e) if e.value.is_none())
}

fn refused(span: Span, what: &str) -> Fault {
    at(span.start_line, format!("{what} not allowed in templates"))
}

/// `expr|name`
fn wrap<'a>(name: &'static str, expr: Expr<'a>) -> Expr<'a> {
    let span = expr.span();
    wrap_option(name, Some(expr), span)
}

fn wrap_option<'a>(name: &'static str, expr: Option<Expr<'a>>, span: Span) -> Expr<'a> {
    let node = Filter {
        name,
        expr,
        args: Vec::new(),
    };
    Expr::Filter(Spanned::new(node, span))
}
