//! What a template uses, read from its syntax tree before anything is rendered.
//!
//! Names bound by the template itself (`for`, `set`, `with`, macros, imports) are left out. A name
//! that may be missing, because of `default` or an `is defined` before it, is marked so.

use std::ops::Range;

use minijinja::machinery::{
    self,
    ast::{self, Expr, Stmt},
};

use super::{
    callables::{CallKind, CallUse, is_global, plain_name},
    environment::syntax,
    limits,
    rewrite::{Edit, FORGIVING_LOOKUP},
};

/// Stands in a path for a subscript that is known only when it is rendered.
pub const ANY: &str = "*";

/// A name and the constant path after it: `r.stdout`, `hostvars['etcd-1'].address`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameUse {
    /// The variable, then attributes and items; `*` for an item that is not a constant.
    pub path: Vec<String>,
    pub offset: usize,
    pub len: usize,
    /// The variable may be missing.
    pub optional: bool,
    /// The variable may be there and the rest of the path missing.
    pub optional_path: bool,
}

impl NameUse {
    pub fn root(&self) -> &str {
        self.path.first().map_or("", String::as_str)
    }

    /// Takes into account paths that are defined where this is used, such as by a task's `when`.
    pub fn guarded_by(mut self, guards: &[Vec<String>]) -> Self {
        for guard in guards.iter().filter(|guard| related(guard, &self.path)) {
            self.optional = true;
            self.optional_path |= guard.len() >= self.path.len();
        }
        self
    }
}

/// Whether one of the paths leads through the other.
fn related(a: &[String], b: &[String]) -> bool {
    a.iter().zip(b).all(|(a, b)| a == b)
}

/// A text that is not a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SyntaxError {
    pub offset: usize,
    pub message: String,
}

impl SyntaxError {
    pub(super) fn new(offset: usize, message: impl Into<String>) -> Self {
        Self { offset, message: message.into() }
    }
}

/// A file that a template includes, imports or extends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    /// `None` when the name is not a constant.
    pub name: Option<String>,
    pub offset: usize,
    pub ignore_missing: bool,
    /// Names the including template has bound at that place, if the included one can see them.
    pub locals: Vec<String>,
}

/// Everything a template uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Analysis {
    pub names: Vec<NameUse>,
    /// Filters, tests, functions and methods, known or not.
    pub calls: Vec<CallUse>,
    pub(super) references: Vec<Reference>,
    pub(super) edits: Vec<Edit>,
    /// Where the expression is, if the text is one `{{ expression }}` and nothing else.
    pub(super) native: Option<Range<usize>>,
    /// Names bound at the top level.
    pub(super) bound: Vec<String>,
}

impl Analysis {
    pub fn of_template(text: &str) -> Result<Self, SyntaxError> {
        Self::of_included(text, &[])
    }

    /// A template that sees names bound by the one that includes it.
    pub(super) fn of_included(text: &str, locals: &[String]) -> Result<Self, SyntaxError> {
        limits::check(text, false)?;
        let tree = machinery::parse(text, "", syntax()).map_err(|error| syntax_error(&error))?;
        let mut walker = Walker::new(text, locals);
        walker.statement(&tree);
        let mut analysis = walker.finish();
        if let Stmt::Template(template) = &tree
            && let [Stmt::EmitExpr(_)] = template.children.as_slice()
        {
            analysis.native = inside_braces(text);
        }
        Ok(analysis)
    }

    /// A bare expression, as in `when:`. Braces around the whole are seen through.
    pub fn of_expression(text: &str) -> Result<Self, SyntaxError> {
        let range = expression_range(text);
        let offset = range.start;
        let mut analysis = Self::of_bare_expression(&text[range]).map_err(|mut error| {
            error.offset += offset;
            error
        })?;
        analysis.names.iter_mut().for_each(|name| name.offset += offset);
        analysis.calls.iter_mut().for_each(|call| call.offset += offset);
        Ok(analysis)
    }

    pub(super) fn of_bare_expression(text: &str) -> Result<Self, SyntaxError> {
        let (walker, ()) = walk_expression(text, |walker, tree| walker.expression(tree))?;
        Ok(walker.finish())
    }
}

fn walk_expression<R>(
    text: &str,
    visit: impl FnOnce(&mut Walker<'_>, &Expr<'_>) -> R,
) -> Result<(Walker<'_>, R), SyntaxError> {
    limits::check(text, true)?;
    let tree = machinery::parse_expr(text).map_err(|error| syntax_error(&error))?;
    let mut walker = Walker::new(text, &[]);
    let result = visit(&mut walker, &tree);
    Ok((walker, result))
}

/// The names a text with `{{ }}` and `{% %}` in it uses.
pub fn names_in_template(text: &str) -> Result<Vec<NameUse>, SyntaxError> {
    Ok(Analysis::of_template(text)?.names)
}

/// The names a bare expression uses.
pub fn names_in_expression(text: &str) -> Result<Vec<NameUse>, SyntaxError> {
    Ok(Analysis::of_expression(text)?.names)
}

/// The paths that are defined wherever the expression holds: what a task's `when` guards.
pub fn guards_in_expression(text: &str) -> Result<Vec<Vec<String>>, SyntaxError> {
    let text = &text[expression_range(text)];
    let (_, guards) = walk_expression(text, |_, tree| defined_if(tree, true))?;
    Ok(guards)
}

/// Whether a bare expression stands in braces that it does not need.
pub fn is_in_braces(expression: &str) -> bool {
    expression_range(expression).start > 0
}

/// Where the expression is: without braces around the whole, which are not needed there.
pub(super) fn expression_range(text: &str) -> Range<usize> {
    let trimmed = text.trim();
    let start = text.len() - text.trim_start().len();
    match inside_braces(trimmed) {
        // `{{ a }} and {{ b }}` is not one expression in braces.
        Some(range) if !trimmed[range.clone()].contains("}}") => range.start + start..range.end + start,
        _ => 0..text.len(),
    }
}

fn inside_braces(text: &str) -> Option<Range<usize>> {
    let inner = text.strip_prefix("{{")?.strip_suffix("}}")?;
    let start = 2 + usize::from(inner.starts_with(['-', '+']));
    let end = text.len() - 2 - usize::from(inner.len() > 1 && inner.ends_with(['-', '+']));
    (start <= end).then_some(start..end)
}

pub(super) fn syntax_error(error: &minijinja::Error) -> SyntaxError {
    let offset = error.range().map_or(0, |range| range.start);
    SyntaxError::new(offset, error.detail().unwrap_or("not a valid template"))
}

struct Walker<'t> {
    text: &'t str,
    found: Analysis,
    /// Names bound by the template, innermost scope last.
    locals: Vec<Vec<String>>,
    /// Paths known to be defined here.
    guards: Vec<Vec<String>>,
}

impl<'t> Walker<'t> {
    fn new(text: &'t str, locals: &[String]) -> Self {
        Self { text, found: Analysis::default(), locals: vec![locals.to_vec()], guards: Vec::new() }
    }

    fn finish(mut self) -> Analysis {
        self.found.bound = self.locals.into_iter().flatten().collect();
        self.found
    }

    fn scoped(&mut self, names: &[&str], visit: impl FnOnce(&mut Self)) {
        self.locals.push(names.iter().map(|&name| name.to_owned()).collect());
        visit(self);
        self.locals.pop();
    }

    fn guarded(&mut self, guards: Vec<Vec<String>>, visit: impl FnOnce(&mut Self)) {
        let before = self.guards.len();
        self.guards.extend(guards);
        visit(self);
        self.guards.truncate(before);
    }

    fn bind(&mut self, name: &str) {
        if let Some(scope) = self.locals.last_mut() {
            scope.push(name.to_owned());
        }
    }

    fn bind_target(&mut self, target: &Expr<'_>) {
        match target {
            Expr::Var(var) => self.bind(var.id),
            Expr::List(list) => list.items.iter().for_each(|item| self.bind_target(item)),
            Expr::Tuple(tuple) => tuple.items.iter().for_each(|item| self.bind_target(item)),
            // `set ns.x` needs `ns`.
            other => self.expression(other),
        }
    }

    fn is_local(&self, name: &str) -> bool {
        self.locals.iter().flatten().any(|local| local == name)
    }

    fn statements(&mut self, list: &[Stmt<'_>]) {
        list.iter().for_each(|statement| self.statement(statement));
    }

    fn statement(&mut self, statement: &Stmt<'_>) {
        match statement {
            Stmt::Template(template) => self.statements(&template.children),
            Stmt::EmitExpr(emit) => self.expression(&emit.expr),
            Stmt::EmitRaw(_) | Stmt::Continue(_) | Stmt::Break(_) => {}
            Stmt::ForLoop(for_loop) => self.for_loop(for_loop),
            Stmt::IfCond(condition) => self.condition(condition),
            Stmt::WithBlock(with) => self.scoped(&[], |walker| {
                for (target, value) in &with.assignments {
                    walker.expression(value);
                    walker.bind_target(target);
                }
                walker.statements(&with.body);
            }),
            Stmt::Set(set) => {
                self.expression(&set.expr);
                self.bind_target(&set.target);
            }
            Stmt::SetBlock(set) => {
                set.filter.iter().for_each(|filter| self.expression(filter));
                self.scoped(&[], |walker| walker.statements(&set.body));
                self.bind_target(&set.target);
            }
            Stmt::AutoEscape(block) => {
                self.expression(&block.enabled);
                self.statements(&block.body);
            }
            Stmt::FilterBlock(block) => {
                self.expression(&block.filter);
                self.scoped(&[], |walker| walker.statements(&block.body));
            }
            Stmt::Block(block) => self.scoped(&["super"], |walker| walker.statements(&block.body)),
            Stmt::Macro(declaration) => self.macro_declaration(declaration),
            Stmt::CallBlock(block) => {
                self.call(&block.call);
                self.macro_body(&block.macro_decl);
            }
            Stmt::Do(statement) => self.call(&statement.call),
            Stmt::Import(_) | Stmt::FromImport(_) | Stmt::Extends(_) | Stmt::Include(_) => self.reference(statement),
        }
    }

    fn for_loop(&mut self, for_loop: &ast::ForLoop<'_>) {
        self.expression(&for_loop.iter);
        self.scoped(&["loop"], |walker| {
            walker.bind_target(&for_loop.target);
            let guards = for_loop.filter_expr.iter().flat_map(|filter| defined_if(filter, true)).collect();
            for_loop.filter_expr.iter().for_each(|filter| walker.expression(filter));
            walker.guarded(guards, |walker| walker.statements(&for_loop.body));
        });
        self.scoped(&[], |walker| walker.statements(&for_loop.else_body));
    }

    fn condition(&mut self, condition: &ast::IfCond<'_>) {
        self.expression(&condition.expr);
        self.guarded(defined_if(&condition.expr, true), |walker| walker.statements(&condition.true_body));
        self.guarded(defined_if(&condition.expr, false), |walker| walker.statements(&condition.false_body));
    }

    fn macro_declaration(&mut self, declaration: &ast::Macro<'_>) {
        self.bind(declaration.name);
        self.macro_body(declaration);
    }

    fn macro_body(&mut self, declaration: &ast::Macro<'_>) {
        declaration.defaults.iter().for_each(|value| self.expression(value));
        self.scoped(&["caller", "varargs", "kwargs"], |walker| {
            declaration.args.iter().for_each(|target| walker.bind_target(target));
            walker.statements(&declaration.body);
        });
    }

    fn reference(&mut self, statement: &Stmt<'_>) {
        let (name, sees_locals, ignore_missing) = match statement {
            Stmt::Import(import) => (&import.expr, false, false),
            Stmt::FromImport(import) => (&import.expr, false, false),
            Stmt::Extends(extends) => (&extends.name, true, false),
            Stmt::Include(include) => (&include.name, true, include.ignore_missing),
            _ => return,
        };
        self.expression(name);
        let locals = if sees_locals { self.locals.iter().flatten().cloned().collect() } else { Vec::new() };
        self.found.references.push(Reference {
            name: name.as_const().and_then(|value| value.as_str().map(str::to_owned)),
            offset: name.span().start_offset as usize,
            ignore_missing,
            locals,
        });
        match statement {
            Stmt::Import(import) => self.bind_target(&import.name),
            Stmt::FromImport(import) => {
                for (name, alias) in &import.names {
                    self.bind_target(alias.as_ref().unwrap_or(name));
                }
            }
            _ => {}
        }
    }

    fn expressions<'e, 'a: 'e>(&mut self, list: impl IntoIterator<Item = &'e Expr<'a>>) {
        list.into_iter().for_each(|expression| self.expression(expression));
    }

    fn expression(&mut self, expression: &Expr<'_>) {
        match expression {
            Expr::Var(_) | Expr::GetAttr(_) | Expr::GetItem(_) => self.path(expression, false),
            Expr::Const(_) => {}
            Expr::Slice(slice) => {
                self.expression(&slice.expr);
                self.expressions([&slice.start, &slice.stop, &slice.step].into_iter().flatten());
            }
            Expr::UnaryOp(operation) => self.expression(&operation.expr),
            Expr::BinOp(operation) => self.binary(operation),
            Expr::Compare(comparison) => {
                self.expression(&comparison.expr);
                self.expressions(comparison.ops.iter().map(|operand| &operand.expr));
            }
            Expr::IfExpr(choice) => self.choice(choice),
            Expr::Filter(filter) => self.filter(filter, filter.span()),
            Expr::Test(test) => self.test(test, test.span()),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => self.expressions(&list.items),
            Expr::Tuple(tuple) => self.expressions(&tuple.items),
            Expr::Map(map) => {
                self.expressions(&map.keys);
                self.expressions(&map.values);
            }
        }
    }

    fn binary(&mut self, operation: &ast::BinOp<'_>) {
        self.expression(&operation.left);
        let guards = match operation.op {
            ast::BinOpKind::ScAnd => defined_if(&operation.left, true),
            ast::BinOpKind::ScOr => defined_if(&operation.left, false),
            _ => Vec::new(),
        };
        self.guarded(guards, |walker| walker.expression(&operation.right));
    }

    fn choice(&mut self, choice: &ast::IfExpr<'_>) {
        self.expression(&choice.test_expr);
        self.guarded(defined_if(&choice.test_expr, true), |walker| walker.expression(&choice.true_expr));
        self.guarded(defined_if(&choice.test_expr, false), |walker| walker.expressions(&choice.false_expr));
    }

    fn filter(&mut self, filter: &ast::Filter<'_>, span: machinery::Span) {
        let name = self.shorten(CallKind::Filter, filter.name, span);
        if let Some(operand) = &filter.expr {
            self.operand(operand, matches!(name, "default" | "d"));
        }
        self.named_callables(name, &filter.args);
        self.arguments(&filter.args);
    }

    fn test(&mut self, test: &ast::Test<'_>, span: machinery::Span) {
        let name = self.shorten(CallKind::Test, test.name, span);
        self.operand(&test.expr, matches!(name, "defined" | "undefined"));
        self.arguments(&test.args);
    }

    /// Records a call; Ansible's full name for it becomes the short one.
    fn shorten<'n>(&mut self, kind: CallKind, name: &'n str, span: machinery::Span) -> &'n str {
        let start = span.start_offset as usize;
        self.record_call(kind, name, start);
        let short = plain_name(name);
        if short != name {
            self.found.edits.push(Edit { start, end: start + name.len(), replacement: short.to_owned() });
        }
        short
    }

    /// What a filter or a test is applied to. `forgiving` ones take it undefined.
    fn operand(&mut self, operand: &Expr<'_>, forgiving: bool) {
        match operand {
            Expr::Var(_) | Expr::GetAttr(_) | Expr::GetItem(_) if forgiving => {
                self.path(operand, true);
                self.forgive(operand);
            }
            _ => self.expression(operand),
        }
    }

    /// `map('upper')` and `select('match', ...)` name filters and tests by strings.
    fn named_callables(&mut self, filter: &str, arguments: &[ast::CallArg<'_>]) {
        let (kind, position) = match filter {
            "map" => (CallKind::Filter, 0),
            "select" | "reject" => (CallKind::Test, 0),
            "selectattr" | "rejectattr" => (CallKind::Test, 1),
            _ => return,
        };
        let Some(ast::CallArg::Pos(argument)) = arguments.get(position) else { return };
        let Some(value) = argument.as_const() else { return };
        if let Some(name) = value.as_str() {
            let offset = argument.span().start_offset as usize + 1;
            self.found.calls.push(CallUse { kind, name: name.to_owned(), offset, len: name.len() });
        }
    }

    fn call(&mut self, call: &ast::Call<'_>) {
        match call.identify_call() {
            ast::CallType::Function(name) => {
                if !self.is_local(name) && name != "super" {
                    self.record_call(CallKind::Function, name, call.expr.span().start_offset as usize);
                }
            }
            ast::CallType::Method(receiver, name) => {
                let on_local = root_of(receiver).is_some_and(|root| self.is_local(root));
                if !on_local {
                    let end = call.expr.span().end_offset as usize;
                    self.record_call(CallKind::Method, name, end.saturating_sub(name.len()));
                }
                self.expression(receiver);
            }
            ast::CallType::Block(_) => {}
            ast::CallType::Object(callee) => self.expression(callee),
        }
        self.arguments(&call.args);
    }

    fn arguments(&mut self, arguments: &[ast::CallArg<'_>]) {
        for argument in arguments {
            let (ast::CallArg::Pos(value)
            | ast::CallArg::Kwarg(_, value)
            | ast::CallArg::PosSplat(value)
            | ast::CallArg::KwargSplat(value)) = argument;
            self.expression(value);
        }
    }

    fn record_call(&mut self, kind: CallKind, name: &str, offset: usize) {
        self.found.calls.push(CallUse { kind, name: name.to_owned(), offset, len: name.len() });
    }

    /// A name with attributes and items after it. Subscripts that are expressions are names too.
    fn path(&mut self, expression: &Expr<'_>, optional: bool) {
        let Some(path) = self.read_path(expression) else { return };
        let root = &path[0];
        if self.is_local(root) || is_global(root) {
            return;
        }
        let start = root_span(expression).start_offset as usize;
        let end = expression.span().end_offset as usize;
        let name = NameUse { path, offset: start, len: end.saturating_sub(start), optional, optional_path: optional };
        self.found.names.push(name.guarded_by(&self.guards));
    }

    fn read_path(&mut self, expression: &Expr<'_>) -> Option<Vec<String>> {
        match expression {
            Expr::Var(var) => Some(vec![var.id.to_owned()]),
            Expr::GetAttr(get) => {
                let mut path = self.read_path(&get.expr)?;
                path.push(get.name.to_owned());
                Some(path)
            }
            Expr::GetItem(get) => {
                let step = constant_key(&get.subscript_expr);
                if step.is_none() {
                    self.expression(&get.subscript_expr);
                }
                let mut path = self.read_path(&get.expr)?;
                path.push(step.unwrap_or_else(|| ANY.to_owned()));
                Some(path)
            }
            other => {
                self.expression(other);
                None
            }
        }
    }

    /// Rewrites `.b` and `[b]` to lookups that take an undefined value, from the inside out.
    fn forgive(&mut self, expression: &Expr<'_>) {
        let (inner, attribute) = match expression {
            Expr::GetAttr(get) => (&get.expr, Some(format!("{:?}", get.name))),
            Expr::GetItem(get) => (&get.expr, None),
            _ => return,
        };
        self.forgive(inner);
        let from = inner.span().end_offset as usize;
        let end = expression.span().end_offset as usize;
        let Some(step) = self.text.get(from..end) else { return };
        // A parenthesis that closes after the inner expression is no part of its span.
        let start = from + step.len() - step.trim_start_matches(|c: char| c == ')' || c.is_whitespace()).len();
        let step = &self.text[start..end];
        let mut edit = |start, end, replacement: String| self.found.edits.push(Edit { start, end, replacement });
        if step.starts_with('.') {
            let argument = attribute.unwrap_or_else(|| step[1..].trim().to_owned());
            edit(start, end, format!("|{FORGIVING_LOOKUP}({argument})"));
        } else if step.starts_with('[') && step.ends_with(']') {
            edit(start, start + 1, format!("|{FORGIVING_LOOKUP}("));
            edit(end - 1, end, ")".into());
        }
    }
}

fn root_of<'a>(expression: &Expr<'a>) -> Option<&'a str> {
    match expression {
        Expr::Var(var) => Some(var.id),
        Expr::GetAttr(get) => root_of(&get.expr),
        Expr::GetItem(get) => root_of(&get.expr),
        _ => None,
    }
}

fn root_span(expression: &Expr<'_>) -> machinery::Span {
    match expression {
        Expr::GetAttr(get) => root_span(&get.expr),
        Expr::GetItem(get) => root_span(&get.expr),
        other => other.span(),
    }
}

fn constant_key(expression: &Expr<'_>) -> Option<String> {
    let value = expression.as_const()?;
    value.as_str().map(str::to_owned).or_else(|| value.as_i64().map(|index| index.to_string()))
}

/// A path of constants only, which an `is defined` can vouch for.
fn constant_path(expression: &Expr<'_>) -> Option<Vec<String>> {
    let (inner, step) = match expression {
        Expr::Var(var) => return Some(vec![var.id.to_owned()]),
        Expr::GetAttr(get) => (&get.expr, get.name.to_owned()),
        Expr::GetItem(get) => (&get.expr, constant_key(&get.subscript_expr)?),
        _ => return None,
    };
    let mut path = constant_path(inner)?;
    path.push(step);
    Some(path)
}

/// The paths that are certainly defined if the expression turns out true (or false).
fn defined_if(expression: &Expr<'_>, holds: bool) -> Vec<Vec<String>> {
    match expression {
        Expr::Test(test) if test.name == "defined" && holds => constant_path(&test.expr).into_iter().collect(),
        Expr::Test(test) if test.name == "undefined" && !holds => constant_path(&test.expr).into_iter().collect(),
        Expr::UnaryOp(operation) if matches!(operation.op, ast::UnaryOpKind::Not) => {
            defined_if(&operation.expr, !holds)
        }
        Expr::BinOp(operation) => match (&operation.op, holds) {
            (ast::BinOpKind::ScAnd, true) | (ast::BinOpKind::ScOr, false) => {
                let mut paths = defined_if(&operation.left, holds);
                paths.extend(defined_if(&operation.right, holds));
                paths
            }
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}
