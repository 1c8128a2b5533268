//! Pages of lists. A token is the position of the next entry, as in MLflow's own stores.

use saggar_rest::mlflow::MlflowInteger;

use super::error::MlflowError;
use crate::limits::MLFLOW_PAGE_MAX;

/// The part of a list that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageRequest {
    pub(super) offset: usize,
    pub(super) limit: usize,
}

impl PageRequest {
    /// Reads the members of a request. `limit` is the number of entries if the client names none.
    pub(super) fn read(
        max_results: Option<MlflowInteger>,
        token: Option<&str>,
        limit: usize,
    ) -> Result<PageRequest, MlflowError> {
        let refuse = |name, expected, got: String| Err(MlflowError::Parameter { name, expected, got });
        let offset = match token.filter(|token| !token.is_empty()) {
            None => 0,
            Some(token) => match token.parse::<u32>() {
                Ok(offset) => offset as usize,
                Err(_) => {
                    let got = token.chars().take(80).collect();
                    return refuse("page_token", "the next_page_token of the page before", got);
                }
            },
        };
        match max_results {
            None => Ok(PageRequest { offset, limit }),
            Some(MlflowInteger(count)) => match usize::try_from(count) {
                Ok(count) if (1..=MLFLOW_PAGE_MAX).contains(&count) => Ok(PageRequest { offset, limit: count }),
                _ => refuse("max_results", "a whole number from 1 to 50000", count.to_string()),
            },
        }
    }

    /// Returns the entries of the page, and the token of the next one.
    pub(super) fn cut<T>(self, entries: Vec<T>) -> (Vec<T>, Option<String>) {
        let end = self.offset.saturating_add(self.limit);
        let token = (end < entries.len()).then(|| end.to_string());
        (entries.into_iter().skip(self.offset).take(self.limit).collect(), token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_cover_the_list_once_and_tokens_are_checked() {
        let read = |count, token| PageRequest::read(Some(MlflowInteger(count)), token, 10);
        let (first, token) = read(2, None).unwrap().cut(vec![1, 2, 3]);
        let (second, end) = read(2, token.as_deref()).unwrap().cut(vec![1, 2, 3]);
        assert_eq!((first, second, end), (vec![1, 2], vec![3], None));
        for (count, token) in [(0, None), (50_001, None), (-1, None), (1, Some("x")), (1, Some("99999999999"))] {
            assert!(read(count, token).is_err(), "{count} {token:?}");
        }
    }
}
