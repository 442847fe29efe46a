//! The texts of a split: prompts, and their tokens once a tokenizer has seen them.

use tch::Tensor;

/// The prompts of a split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompts {
    pub texts: Vec<String>,
    /// Whether the end-of-text token follows every prompt.
    pub ended: bool,
}

/// The tokens of N prompts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// The number of tokens of each prompt, `[N]`.
    pub lengths: Vec<u32>,
    /// Token ids, then 1 for each token, `[N, 2, T]`. Prompts shorter than T are filled with zeros behind.
    pub numbers: Vec<i32>,
}

/// Prompts with their tokens.
#[derive(Clone, Debug)]
pub struct Texts {
    pub prompts: Prompts,
    /// The tokens, `None` as long as no tokenizer has seen the prompts.
    pub tokens: Option<Tokens>,
}

impl Tokens {
    /// Takes the token ids of each prompt.
    pub fn new(all: &[Vec<u32>]) -> Tokens {
        let lengths: Vec<u32> = all.iter().map(|ids| ids.len() as u32).collect();
        let longest = lengths.iter().max().copied().unwrap_or(0) as usize;
        let mut numbers = Vec::with_capacity(2 * longest * all.len());
        for ids in all {
            let empty = longest - ids.len();
            numbers.extend(ids.iter().map(|id| *id as i32).chain(std::iter::repeat_n(0, empty)));
            numbers.extend(std::iter::repeat_n(1, ids.len()).chain(std::iter::repeat_n(0, empty)));
        }
        Tokens { lengths, numbers }
    }

    /// Returns the number of tokens of the longest prompt, T.
    pub fn longest(&self) -> usize {
        self.lengths.iter().max().copied().unwrap_or(0) as usize
    }

    /// Returns the numbers as a tensor `[N, 2, T]` on the CPU.
    pub fn tensor(&self) -> Tensor {
        Tensor::from_slice(&self.numbers).view([self.lengths.len() as i64, 2, self.longest() as i64])
    }

    pub(super) fn select(&self, indices: &[u32]) -> Tokens {
        let (longest, row) = (self.longest(), 2 * self.longest());
        let ids = |i: u32| {
            let (start, length) = (i as usize * row, self.lengths[i as usize] as usize);
            debug_assert!(length <= longest);
            self.numbers[start..start + length].iter().map(|id| *id as u32).collect()
        };
        Tokens::new(&indices.iter().map(|i| ids(*i)).collect::<Vec<Vec<u32>>>())
    }
}

impl Texts {
    /// Takes prompts without tokens.
    pub fn new(texts: Vec<String>, ended: bool) -> Texts {
        Texts { prompts: Prompts { texts, ended }, tokens: None }
    }

    /// Returns the texts at `indices`, in that order.
    pub(super) fn select(&self, indices: &[u32]) -> Texts {
        let texts = indices.iter().map(|&i| self.prompts.texts[i as usize].clone()).collect();
        let tokens = self.tokens.as_ref().map(|tokens| tokens.select(indices));
        Texts { prompts: Prompts { texts, ended: self.prompts.ended }, tokens }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_keeps_texts_and_tokens_together() {
        let mut texts = Texts::new(vec!["a".into(), "b c d".into(), "e f".into()], false);
        texts.tokens = Some(Tokens::new(&[vec![7], vec![8, 9, 10], vec![11, 12]]));
        let two = texts.select(&[2, 0]);
        assert_eq!(two.prompts.texts, ["e f", "a"]);
        let tokens = two.tokens.unwrap();
        assert_eq!((tokens.longest(), tokens.lengths), (2, vec![2, 1]));
        assert_eq!(tokens.numbers, [11, 12, 1, 1, 7, 0, 1, 0]);
    }
}
