//! Tokens to syntax tree: precedence climbing, with the macros expanded as they are met.

use std::sync::Arc;

use super::CompileError;
use super::ast::{Entry, Expr, Kind};
use super::lexer::{Token, tokens};
use super::macros;
use super::value::Value;

/// Bounds the recursion of everything that walks the tree. No rule that a person wrote comes near.
pub(crate) const MAX_DEPTH: u16 = 100;

/// Words that CEL keeps for itself; `true`, `false`, `null` and `in` have a meaning.
pub(crate) const RESERVED: [&str; 18] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
];

/// Functions whose name has a dot, which otherwise looks like a method of a variable.
const QUALIFIED: [&str; 6] = ["optional", "base64", "sets", "strings", "ip", "cel"];

/// Binary operators from loose to tight; all of them group to the left.
const LEVELS: [&[&str]; 3] = [&["<", "<=", ">", ">=", "==", "!=", "in"], &["+", "-"], &["*", "/", "%"]];

pub(crate) fn parse(source: &str) -> Result<Expr, CompileError> {
    let mut parser = Parser { tokens: tokens(source)?, at: 0, nesting: 0 };
    let expr = parser.expression()?;
    match parser.peek() {
        Token::End => Ok(expr),
        other => Err(parser.unexpected(&other.clone())),
    }
}

pub(crate) struct Parser {
    tokens: Vec<(Token, usize)>,
    at: usize,
    nesting: u16,
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.at].0
    }

    fn offset(&self) -> usize {
        self.tokens[self.at].1
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        // The end is never passed, so there is always a token to look at.
        if token != Token::End {
            self.at += 1;
        }
        token
    }

    fn eat(&mut self, symbol: &str) -> bool {
        let found = matches!(self.peek(), Token::Symbol(next) if *next == symbol);
        if found {
            self.at += 1;
        }
        found
    }

    fn expect(&mut self, symbol: &str) -> Result<(), CompileError> {
        if self.eat(symbol) {
            return Ok(());
        }
        let found = describe(self.peek());
        Err(CompileError::syntax(self.offset(), format!("mismatched input {found} expecting '{symbol}'")))
    }

    fn unexpected(&self, token: &Token) -> CompileError {
        CompileError::syntax(self.offset(), format!("mismatched input {} expecting <EOF>", describe(token)))
    }

    fn expression(&mut self) -> Result<Expr, CompileError> {
        self.nesting += 1;
        if self.nesting > MAX_DEPTH {
            return Err(too_deep(self.offset()));
        }
        let expr = self.conditional();
        self.nesting -= 1;
        expr
    }

    fn conditional(&mut self) -> Result<Expr, CompileError> {
        let condition = self.chain("||")?;
        let offset = self.offset();
        if !self.eat("?") {
            return Ok(condition);
        }
        let then = self.chain("||")?;
        self.expect(":")?;
        let otherwise = self.expression()?;
        node(Kind::Conditional(Box::new([condition, then, otherwise])), offset)
    }

    fn chain(&mut self, symbol: &'static str) -> Result<Expr, CompileError> {
        let part = |parser: &mut Self| if symbol == "||" { parser.chain("&&") } else { parser.binary(0) };
        let offset = self.offset();
        let first = part(self)?;
        let mut parts = vec![first];
        while self.eat(symbol) {
            parts.push(part(self)?);
        }
        match (parts.len(), symbol) {
            (1, _) => Ok(parts.remove(0)),
            (_, "||") => node(Kind::Or(parts), offset),
            _ => node(Kind::And(parts), offset),
        }
    }

    fn binary(&mut self, level: usize) -> Result<Expr, CompileError> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        while let Some(operator) = self.operator(operators) {
            let offset = self.offset();
            self.at += 1;
            let right = self.binary(level + 1)?;
            let function = if operator == "in" { "@in".to_owned() } else { format!("_{operator}_") };
            left = node(Kind::Call { function: function.into(), method: false, args: vec![left, right] }, offset)?;
        }
        Ok(left)
    }

    fn operator(&self, operators: &[&'static str]) -> Option<&'static str> {
        operators.iter().copied().find(|operator| match self.peek() {
            Token::Symbol(symbol) => symbol == operator,
            Token::Ident(word) => &**word == *operator,
            _ => false,
        })
    }

    fn unary(&mut self) -> Result<Expr, CompileError> {
        let offset = self.offset();
        let operator = if self.eat("!") {
            "!_"
        } else if self.eat("-") {
            if let Token::Int(_) | Token::Double(_) = self.peek() {
                return self.negative(offset);
            }
            "-_"
        } else {
            return self.member();
        };
        self.nesting += 1;
        if self.nesting > MAX_DEPTH {
            return Err(too_deep(offset));
        }
        let operand = self.unary()?;
        self.nesting -= 1;
        node(Kind::Call { function: operator.into(), method: false, args: vec![operand] }, offset)
    }

    /// A literal with its sign: `-9223372036854775808` has no positive counterpart. Selections bind to the literal with its sign.
    fn negative(&mut self, offset: usize) -> Result<Expr, CompileError> {
        let value = match self.next() {
            Token::Int(magnitude) => {
                let value = 0i64.checked_sub_unsigned(magnitude);
                Value::Int(value.ok_or_else(|| CompileError::check(offset, "invalid int literal"))?)
            }
            Token::Double(magnitude) => Value::Double(-magnitude),
            other => return Err(self.unexpected(&other)),
        };
        let literal = node(Kind::Literal(value), offset)?;
        self.selections(literal)
    }

    fn member(&mut self) -> Result<Expr, CompileError> {
        let primary = self.primary()?;
        self.selections(primary)
    }

    fn selections(&mut self, mut expr: Expr) -> Result<Expr, CompileError> {
        loop {
            let offset = self.offset();
            if self.eat(".") {
                expr = self.selection(expr, offset)?;
            } else if self.eat("[") {
                let optional = self.eat("?");
                let index = self.expression()?;
                self.expect("]")?;
                let kind = Kind::Index { operand: Box::new(expr), index: Box::new(index), optional };
                expr = node(kind, offset)?;
            } else {
                return Ok(expr);
            }
        }
    }

    fn selection(&mut self, operand: Expr, offset: usize) -> Result<Expr, CompileError> {
        let optional = self.eat("?");
        let field = match self.next() {
            Token::Ident(name) if !RESERVED[..4].contains(&&*name) => name,
            Token::Quoted(name) => name,
            other => {
                self.at -= usize::from(other != Token::End);
                let message = format!("no viable alternative at input '.{}'", describe(&other).trim_matches('\''));
                return Err(CompileError::syntax(self.offset(), message));
            }
        };
        if optional || !self.eat("(") {
            return node(Kind::Select { operand: Box::new(operand), field, optional }, offset);
        }
        let args = self.arguments(")")?;
        if let Kind::Ident(space) = &operand.kind
            && QUALIFIED.contains(&&**space)
        {
            return macros::function(&format!("{space}.{field}"), args, offset);
        }
        macros::method(operand, &field, args, offset)
    }

    fn arguments(&mut self, end: &str) -> Result<Vec<Expr>, CompileError> {
        let mut args = Vec::new();
        while !self.eat(end) {
            args.push(self.expression()?);
            if !self.eat(",") {
                self.expect(end)?;
                break;
            }
        }
        Ok(args)
    }

    fn primary(&mut self) -> Result<Expr, CompileError> {
        let offset = self.offset();
        let value = match self.next() {
            Token::Symbol("(") => {
                let inner = self.expression()?;
                self.expect(")")?;
                return Ok(inner);
            }
            Token::Symbol("[") => return self.list(offset),
            Token::Symbol("{") => return self.map(offset),
            // A leading dot only says that the name is absolute; there is one container here.
            Token::Symbol(".") if matches!(self.peek(), Token::Ident(_)) => return self.primary(),
            Token::Ident(name) => return self.name(&name, offset),
            Token::Int(value) => {
                let value = i64::try_from(value);
                Value::Int(value.map_err(|_| CompileError::check(offset, "invalid int literal"))?)
            }
            Token::Uint(value) => Value::Uint(value),
            Token::Double(value) => Value::Double(value),
            Token::String(text) => Value::String(text),
            Token::Bytes(bytes) => Value::Bytes(bytes),
            other => {
                let message = format!("mismatched input {} expecting an expression", describe(&other));
                return Err(CompileError::syntax(offset, message));
            }
        };
        node(Kind::Literal(value), offset)
    }

    fn name(&mut self, name: &Arc<str>, offset: usize) -> Result<Expr, CompileError> {
        let literal = match &**name {
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            "null" => Some(Value::Null),
            word if RESERVED.contains(&word) => {
                return Err(CompileError::check(offset, format!("reserved identifier: {word}")));
            }
            _ => None,
        };
        if let Some(value) = literal {
            return node(Kind::Literal(value), offset);
        }
        if self.eat("(") {
            let args = self.arguments(")")?;
            return macros::function(name, args, offset);
        }
        node(Kind::Ident(name.clone()), offset)
    }

    fn list(&mut self, offset: usize) -> Result<Expr, CompileError> {
        let mut entries = Vec::new();
        while !self.eat("]") {
            let optional = self.eat("?");
            entries.push(Entry { value: self.expression()?, optional });
            if !self.eat(",") {
                self.expect("]")?;
                break;
            }
        }
        node(Kind::List(entries), offset)
    }

    fn map(&mut self, offset: usize) -> Result<Expr, CompileError> {
        let mut entries = Vec::new();
        while !self.eat("}") {
            let optional = self.eat("?");
            let key = self.expression()?;
            self.expect(":")?;
            entries.push((key, Entry { value: self.expression()?, optional }));
            if !self.eat(",") {
                self.expect("}")?;
                break;
            }
        }
        node(Kind::Map(entries), offset)
    }
}

/// Builds a node, and refuses one that is too deep to be walked safely.
pub(crate) fn node(kind: Kind, offset: usize) -> Result<Expr, CompileError> {
    let mut expr = Expr { kind, offset, depth: 1 };
    let below = expr.children().iter().map(|child| child.depth).max().unwrap_or(0);
    expr.depth = below + 1;
    if expr.depth > MAX_DEPTH { Err(too_deep(offset)) } else { Ok(expr) }
}

fn too_deep(offset: usize) -> CompileError {
    CompileError::syntax(offset, format!("expression recursion limit exceeded: {MAX_DEPTH}"))
}

fn describe(token: &Token) -> String {
    match token {
        Token::Ident(name) | Token::Quoted(name) => format!("'{name}'"),
        Token::Int(value) | Token::Uint(value) => format!("'{value}'"),
        Token::Double(value) => format!("'{value}'"),
        Token::String(text) => format!("{text:?}"),
        Token::Bytes(_) => "bytes".to_owned(),
        Token::Symbol(symbol) => format!("'{symbol}'"),
        Token::End => "'<EOF>'".to_owned(),
    }
}
