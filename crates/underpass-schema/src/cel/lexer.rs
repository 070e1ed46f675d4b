//! Text to tokens.

use std::sync::Arc;

use super::CompileError;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token {
    Ident(Arc<str>),
    /// A field name between backticks: it cannot be a variable.
    Quoted(Arc<str>),
    /// Kept unsigned: the sign is applied by the parser, so that the smallest integer can be written.
    Int(u64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
    Symbol(&'static str),
    End,
}

/// Longest first, since the first that fits is taken.
const SYMBOLS: [&str; 25] = [
    "&&", "||", "==", "!=", "<=", ">=", "(", ")", "[", "]", "{", "}", ".", ",", ":", "?", "+", "-", "*", "/", "%", "<",
    ">", "!", "=",
];

pub(crate) fn tokens(source: &str) -> Result<Vec<(Token, usize)>, CompileError> {
    let mut lexer = Lexer { source, at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blanks();
        let start = lexer.at;
        let token = lexer.token()?;
        let end = token == Token::End;
        tokens.push((token, start));
        if end {
            return Ok(tokens);
        }
    }
}

struct Lexer<'s> {
    source: &'s str,
    at: usize,
}

impl<'s> Lexer<'s> {
    fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    fn error(&self, message: impl Into<String>) -> CompileError {
        CompileError::syntax(self.at, message)
    }

    fn take(&mut self, fits: impl Fn(char) -> bool) -> &'s str {
        let rest = self.rest();
        let length = rest.find(|c| !fits(c)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn skip_blanks(&mut self) {
        loop {
            self.take(char::is_whitespace);
            if !self.rest().starts_with("//") {
                return;
            }
            self.take(|c| c != '\n');
        }
    }

    fn token(&mut self) -> Result<Token, CompileError> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok(Token::End) };
        if let Some((prefix, raw, bytes)) = string_prefix(rest) {
            self.at += prefix;
            return self.string(raw, bytes);
        }
        if first.is_ascii_digit() || (first == '.' && rest[1..].starts_with(|c: char| c.is_ascii_digit())) {
            return self.number();
        }
        if first == '_' || first.is_ascii_alphabetic() {
            return Ok(Token::Ident(self.take(|c| c == '_' || c.is_ascii_alphanumeric()).into()));
        }
        if first == '`' {
            return self.quoted();
        }
        let symbol = SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol));
        let symbol = symbol.ok_or_else(|| self.error(format!("token recognition error at: '{first}'")))?;
        self.at += symbol.len();
        Ok(Token::Symbol(symbol))
    }

    fn quoted(&mut self) -> Result<Token, CompileError> {
        self.at += 1;
        let name = self.take(|c| c.is_ascii_alphanumeric() || "_.-/ ".contains(c));
        if name.is_empty() || !self.rest().starts_with('`') {
            return Err(self.error("unterminated or invalid quoted field name"));
        }
        self.at += 1;
        Ok(Token::Quoted(name.into()))
    }

    fn number(&mut self) -> Result<Token, CompileError> {
        let start = self.at;
        if let Some(digits) = self.rest().strip_prefix("0x").or_else(|| self.rest().strip_prefix("0X")) {
            let length = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
            self.at += 2 + length;
            let value = u64::from_str_radix(&digits[..length], 16);
            let value = value.map_err(|_| CompileError::check(start, "invalid hexadecimal literal"))?;
            return Ok(self.integer(value));
        }
        self.take(|c| c.is_ascii_digit());
        let is_double = self.fraction_and_exponent();
        let text = &self.source[start..self.at];
        if is_double {
            let value = text.parse().map_err(|_| CompileError::check(start, "invalid double literal"))?;
            return Ok(Token::Double(value));
        }
        let value = text.parse().map_err(|_| CompileError::check(start, "invalid int literal"))?;
        Ok(self.integer(value))
    }

    fn integer(&mut self, value: u64) -> Token {
        if self.rest().starts_with(['u', 'U']) {
            self.at += 1;
            return Token::Uint(value);
        }
        Token::Int(value)
    }

    fn fraction_and_exponent(&mut self) -> bool {
        let start = self.at;
        if let Some(after) = self.rest().strip_prefix('.')
            && after.starts_with(|c: char| c.is_ascii_digit())
        {
            self.at += 1;
            self.take(|c| c.is_ascii_digit());
        }
        if let Some(after) = self.rest().strip_prefix(['e', 'E']) {
            let digits = after.strip_prefix(['+', '-']).unwrap_or(after);
            if digits.starts_with(|c: char| c.is_ascii_digit()) {
                self.at += 1 + after.len() - digits.len();
                self.take(|c| c.is_ascii_digit());
            }
        }
        self.at > start
    }

    fn string(&mut self, raw: bool, bytes: bool) -> Result<Token, CompileError> {
        let rest = self.rest();
        let quote = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| rest.starts_with(quote));
        let quote = quote.ok_or_else(|| self.error("expected a string"))?;
        self.at += quote.len();
        let mut text = Vec::new();
        while !self.rest().starts_with(quote) {
            let c = self.rest().chars().next().ok_or_else(|| self.error("unterminated string"))?;
            if c == '\n' && quote.len() == 1 {
                return Err(self.error("unterminated string"));
            }
            self.at += c.len_utf8();
            if c == '\\' && !raw {
                self.escape(bytes, &mut text)?;
            } else {
                text.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        self.at += quote.len();
        if bytes {
            return Ok(Token::Bytes(text.into()));
        }
        let text = String::from_utf8(text).map_err(|_| self.error("string is not valid UTF-8"))?;
        Ok(Token::String(text.into()))
    }

    /// The part of an escape after its backslash.
    fn escape(&mut self, bytes: bool, text: &mut Vec<u8>) -> Result<(), CompileError> {
        let c = self.rest().chars().next().ok_or_else(|| self.error("unterminated string"))?;
        self.at += c.len_utf8();
        let simple = match c {
            'a' => '\x07',
            'b' => '\x08',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            '\\' | '\'' | '"' | '`' | '?' => c,
            'x' | 'X' => return self.code(2, 16, bytes, text),
            'u' if !bytes => return self.code(4, 16, false, text),
            'U' if !bytes => return self.code(8, 16, false, text),
            '0'..='3' => {
                self.at -= 1;
                return self.code(3, 8, bytes, text);
            }
            _ => return Err(self.error(format!("invalid escape '\\{c}'"))),
        };
        text.extend(simple.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    /// A number of fixed width: a byte in bytes, a code point in strings.
    fn code(&mut self, width: usize, radix: u32, bytes: bool, text: &mut Vec<u8>) -> Result<(), CompileError> {
        let digits = self.rest().get(..width).filter(|digits| digits.chars().all(|c| c.is_digit(radix)));
        let number = digits.and_then(|digits| u32::from_str_radix(digits, radix).ok());
        let number = number.ok_or_else(|| self.error("invalid escape"))?;
        self.at += width;
        if bytes {
            text.push(u8::try_from(number).map_err(|_| self.error("invalid escape"))?);
            return Ok(());
        }
        let c = char::from_u32(number).ok_or_else(|| self.error("invalid code point"))?;
        text.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }
}

/// Length of the prefix, whether it is raw, whether it is bytes.
fn string_prefix(rest: &str) -> Option<(usize, bool, bool)> {
    let length = rest.chars().take(3).position(|c| matches!(c, '"' | '\''))?;
    // What stands before a quote is ASCII or no prefix.
    rest.get(..length).filter(|prefix| prefix.is_ascii())?;
    let prefix = rest[..length].to_ascii_lowercase();
    match prefix.as_str() {
        "" => Some((0, false, false)),
        "r" => Some((1, true, false)),
        "b" => Some((1, false, true)),
        "rb" | "br" => Some((2, true, true)),
        _ => None,
    }
}
