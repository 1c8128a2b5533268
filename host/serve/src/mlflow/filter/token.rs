//! The tokens of a filter.

use crate::mlflow::error::MlflowError;

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FilterToken {
    /// A name with its dots, or a keyword.
    Word(String),
    /// A name in backquotes.
    Quoted(String),
    /// A text in single or double quotes.
    Text(String),
    /// A number.
    Number(f64),
    /// A comparison operator.
    Operator(&'static str),
    /// A parenthesis or comma.
    Mark(char),
}

const OPERATORS: [&str; 6] = ["!=", "<=", ">=", "=", "<", ">"];
/// The most texts of a list.
const TEXTS_MAX: usize = 1000;

/// The tokens of a filter, in order.
pub(super) struct FilterTokens<'t> {
    rest: &'t str,
    /// The position of `rest` in characters, from 1.
    at: usize,
    /// The next token and the position where it begins, if it was read already.
    peeked: Option<(Option<FilterToken>, usize)>,
}

impl<'t> FilterTokens<'t> {
    pub(super) fn new(text: &'t str) -> FilterTokens<'t> {
        FilterTokens { rest: text, at: 1, peeked: None }
    }

    /// Returns the error that something else is expected at the next token.
    pub(super) fn error(&self, expected: &'static str) -> MlflowError {
        let (rest, at) = match &self.peeked {
            Some((token, at)) => (token.as_ref().map_or(String::new(), describe), *at),
            None => {
                let trimmed = self.rest.trim_start();
                let skipped = self.rest.len() - trimmed.len();
                (trimmed.chars().take(30).collect(), self.at + self.rest[..skipped].chars().count())
            }
        };
        MlflowError::Filter { at, expected, got: if rest.is_empty() { "the end".to_owned() } else { rest } }
    }

    pub(super) fn peek(&mut self) -> Result<Option<&FilterToken>, MlflowError> {
        if self.peeked.is_none() {
            self.skip_space();
            let at = self.at;
            self.peeked = Some((self.read()?, at));
        }
        Ok(self.peeked.as_ref().and_then(|(token, _)| token.as_ref()))
    }

    pub(super) fn next(&mut self) -> Result<Option<FilterToken>, MlflowError> {
        self.peek()?;
        Ok(self.peeked.take().and_then(|(token, _)| token))
    }

    /// Takes a keyword if it is next. Returns whether it was.
    pub(super) fn take_word(&mut self, word: &str) -> Result<bool, MlflowError> {
        let is_next = matches!(self.peek()?, Some(FilterToken::Word(next)) if next.eq_ignore_ascii_case(word));
        if is_next {
            self.peeked = None;
        }
        Ok(is_next)
    }

    pub(super) fn expect_word(&mut self, word: &str, expected: &'static str) -> Result<(), MlflowError> {
        if self.take_word(word)? { Ok(()) } else { Err(self.error(expected)) }
    }

    pub(super) fn expect_number(&mut self) -> Result<f64, MlflowError> {
        self.peek()?;
        let wrong = self.error("a number");
        match self.next()? {
            Some(FilterToken::Number(number)) => Ok(number),
            _ => Err(wrong),
        }
    }

    pub(super) fn expect_text(&mut self) -> Result<String, MlflowError> {
        self.peek()?;
        let wrong = self.error("a text in quotes");
        match self.next()? {
            Some(FilterToken::Text(text)) => Ok(text),
            _ => Err(wrong),
        }
    }

    /// Reads texts in parentheses.
    pub(super) fn expect_texts(&mut self) -> Result<Vec<String>, MlflowError> {
        self.expect_mark('(', "(")?;
        let mut texts = vec![self.expect_text()?];
        while !self.take_mark(')')? {
            self.expect_mark(',', ", or )")?;
            if texts.len() == TEXTS_MAX {
                return Err(self.error("at most 1000 texts"));
            }
            texts.push(self.expect_text()?);
        }
        Ok(texts)
    }

    fn take_mark(&mut self, mark: char) -> Result<bool, MlflowError> {
        let is_next = matches!(self.peek()?, Some(FilterToken::Mark(next)) if *next == mark);
        if is_next {
            self.peeked = None;
        }
        Ok(is_next)
    }

    fn expect_mark(&mut self, mark: char, expected: &'static str) -> Result<(), MlflowError> {
        if self.take_mark(mark)? { Ok(()) } else { Err(self.error(expected)) }
    }

    fn skip_space(&mut self) {
        let trimmed = self.rest.trim_start();
        self.advance(self.rest.len() - trimmed.len());
    }

    fn advance(&mut self, bytes: usize) {
        self.at += self.rest[..bytes].chars().count();
        self.rest = &self.rest[bytes..];
    }

    fn read(&mut self) -> Result<Option<FilterToken>, MlflowError> {
        let Some(first) = self.rest.chars().next() else { return Ok(None) };
        if let Some(operator) = OPERATORS.into_iter().find(|operator| self.rest.starts_with(operator)) {
            self.advance(operator.len());
            return Ok(Some(FilterToken::Operator(operator)));
        }
        match first {
            '\'' | '"' | '`' => {
                let inner = &self.rest[1..];
                let Some(end) = inner.find(first) else { return Err(self.error("a closing quote")) };
                let text = inner[..end].to_owned();
                self.advance(end + 2);
                Ok(Some(if first == '`' { FilterToken::Quoted(text) } else { FilterToken::Text(text) }))
            }
            '(' | ')' | ',' => {
                self.advance(1);
                Ok(Some(FilterToken::Mark(first)))
            }
            '0'..='9' | '-' | '+' | '.' => {
                let is_number = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+');
                let end = self.rest.find(|c| !is_number(c)).unwrap_or(self.rest.len());
                let number: Option<f64> = self.rest[..end].parse().ok().filter(|number: &f64| number.is_finite());
                let Some(number) = number else { return Err(self.error("a number")) };
                self.advance(end);
                Ok(Some(FilterToken::Number(number)))
            }
            c if c.is_alphabetic() || c == '_' => {
                let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '/');
                let end = self.rest.find(|c| !is_name(c)).unwrap_or(self.rest.len());
                let word = self.rest[..end].to_owned();
                self.advance(end);
                Ok(Some(FilterToken::Word(word)))
            }
            _ => Err(self.error("a field, an operator, a number or a text in quotes")),
        }
    }
}

fn describe(token: &FilterToken) -> String {
    let text = match token {
        FilterToken::Word(text) | FilterToken::Quoted(text) | FilterToken::Text(text) => text.clone(),
        FilterToken::Number(number) => number.to_string(),
        FilterToken::Operator(operator) => (*operator).to_owned(),
        FilterToken::Mark(mark) => mark.to_string(),
    };
    text.chars().take(30).collect()
}
