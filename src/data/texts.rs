//! The texts of a split: prompts, or questions about images with the answers of people; and their tokens once a tokenizer has seen
//! them.

use tch::Tensor;

use super::fields::{Fields, of_texts};
use super::images::Images;
use crate::base::small::shortened;

/// The prompts of a split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompts {
    pub texts: Vec<String>,
    /// The second texts of pairs, `None` for single texts.
    pub seconds: Option<Vec<String>>,
    /// Whether the end-of-text token follows every prompt.
    pub ended: bool,
}

/// The tokens of N prompts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// The number of tokens of each prompt, `[N]`.
    pub lengths: Vec<u32>,
    /// Token ids, then 1 for each token, then the kind of each token if kinds are kept, `[N, 2 or 3, T]`. Prompts shorter
    /// than T are filled with zeros behind.
    pub numbers: Vec<i32>,
}

/// Prompts with their tokens.
#[derive(Clone, Debug)]
pub struct Texts {
    pub prompts: Prompts,
    /// The tokens, `None` as long as no tokenizer has seen the prompts.
    pub tokens: Option<Tokens>,
}

impl Prompts {
    /// Returns how a message names a prompt: by its beginning and its place among those that are read.
    pub fn shown(&self, at: usize) -> String {
        format!("{:?} ({} of {})", shortened(&self.texts[at], 40), at + 1, self.texts.len())
    }

    /// Returns all texts, second ones behind all first ones.
    pub fn all(&self) -> impl Iterator<Item = &String> {
        self.texts.iter().chain(self.seconds.iter().flatten())
    }
}

impl Tokens {
    /// Takes the token ids of each prompt.
    pub fn new<Ids: AsRef<[u32]>>(all: &[Ids]) -> Tokens {
        let ids: Vec<&[u32]> = all.iter().map(AsRef::as_ref).collect();
        Tokens::of(&ids, None)
    }

    /// Takes the token ids of each prompt, and the kind of each token: the number of its text in a pair.
    pub fn with_kinds(ids: &[&[u32]], kinds: &[&[u32]]) -> Tokens {
        Tokens::of(ids, Some(kinds))
    }

    fn of(all: &[&[u32]], kinds: Option<&[&[u32]]>) -> Tokens {
        let lengths: Vec<u32> = all.iter().map(|ids| ids.len() as u32).collect();
        let longest = lengths.iter().max().copied().unwrap_or(0) as usize;
        let mut numbers = Vec::with_capacity((2 + usize::from(kinds.is_some())) * longest * all.len());
        for (at, ids) in all.iter().enumerate() {
            let empty = longest - ids.len();
            numbers.extend(ids.iter().map(|id| *id as i32).chain(std::iter::repeat_n(0, empty)));
            numbers.extend(std::iter::repeat_n(1, ids.len()).chain(std::iter::repeat_n(0, empty)));
            if let Some(kinds) = kinds {
                numbers.extend(kinds[at].iter().map(|kind| *kind as i32).chain(std::iter::repeat_n(0, empty)));
            }
        }
        Tokens { lengths, numbers }
    }

    /// Returns the number of tokens of the longest prompt, T.
    pub fn longest(&self) -> usize {
        self.lengths.iter().max().copied().unwrap_or(0) as usize
    }

    /// Returns the numbers of all tokens as a tensor `[N, 2 or 3, T]` on the CPU.
    pub fn tensor(&self) -> Tensor {
        let (prompts, longest) = (self.lengths.len() as i64, self.longest() as i64);
        Tensor::from_slice(&self.numbers).view([prompts, self.values() as i64, longest])
    }

    /// Returns the tokens as samples: ids, mask and, if they are kept, kinds, `[N, T]` each.
    pub fn samples(&self) -> Fields {
        of_texts(&self.tensor())
    }

    /// Returns the number of values of a token: 3 if kinds are kept.
    fn values(&self) -> usize {
        self.numbers.len() / (self.lengths.len() * self.longest()).max(1)
    }

    /// Returns the tokens of the prompts at `indices`, as long as the longest of them.
    pub fn select(&self, indices: &[u32]) -> Tokens {
        let (longest, values) = (self.longest(), self.values());
        let value = |i: u32, value: usize| -> Vec<u32> {
            let start = (i as usize * values + value) * longest;
            self.numbers[start..start + self.lengths[i as usize] as usize].iter().map(|id| *id as u32).collect()
        };
        let each = |of: usize| indices.iter().map(|i| value(*i, of)).collect::<Vec<_>>();
        if values < 3 {
            return Tokens::new(&each(0));
        }
        let (ids, kinds) = (each(0), each(2));
        Tokens::with_kinds(
            &ids.iter().map(Vec::as_slice).collect::<Vec<_>>(),
            &kinds.iter().map(Vec::as_slice).collect::<Vec<_>>(),
        )
    }
}

impl Texts {
    /// Takes prompts without tokens.
    pub fn new(texts: Vec<String>, ended: bool) -> Texts {
        Texts { prompts: Prompts { texts, seconds: None, ended }, tokens: None }
    }

    /// Takes pairs of texts without tokens.
    pub fn pairs(texts: Vec<String>, seconds: Vec<String>) -> Texts {
        Texts { prompts: Prompts { texts, seconds: Some(seconds), ended: false }, tokens: None }
    }

    /// Returns the texts at `indices`, in that order.
    pub(super) fn select(&self, indices: &[u32]) -> Texts {
        let pick = |of: &Vec<String>| indices.iter().map(|&i| of[i as usize].clone()).collect();
        let Prompts { texts, seconds, ended } = &self.prompts;
        let prompts = Prompts { texts: pick(texts), seconds: seconds.as_ref().map(pick), ended: *ended };
        Texts { prompts, tokens: self.tokens.as_ref().map(|tokens| tokens.select(indices)) }
    }
}

/// The answers that people gave to a question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// The number of the question, by which results name it.
    pub question: u64,
    /// The answer to learn: the one that most people gave.
    pub target: String,
    /// The answers of all people, in the order of the file.
    pub people: Vec<String>,
}

/// The form in which the answer to a question is learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learnt {
    /// The words of its target, token by token.
    Answer,
    /// The class that its target is.
    Class,
}

/// N questions about images.
#[derive(Clone, Debug)]
pub struct Questions {
    /// The prompts, each with one placeholder of an image.
    pub prompts: Vec<String>,
    /// The answers that people gave to each question, `[N]`.
    pub answers: Vec<Answers>,
    pub learnt: Learnt,
    /// The images, each of which several questions may be about: image files, or images in memory.
    pub images: Images,
    /// The image of each question, `[N]`.
    pub image_of: Vec<u32>,
    /// The tokens, `None` as long as no tokenizer has seen the questions.
    pub tokens: Option<Spelled>,
}

/// The tokens of N questions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spelled {
    /// The tokens of the prompts alone.
    pub prompts: Tokens,
    /// The tokens of the prompts, each followed by its target and the end-of-text token; where classes are learnt, the prompts
    /// alone.
    pub answered: Tokens,
}

impl Questions {
    /// Hands over the bytes by which the questions are known: prompts, numbers and answers, and the image of each.
    pub(super) fn describe(&self, take: &mut dyn FnMut(&[u8])) {
        for ((prompt, answers), image) in self.prompts.iter().zip(&self.answers).zip(&self.image_of) {
            take(prompt.as_bytes());
            take(&answers.question.to_le_bytes());
            take(&image.to_le_bytes());
            take(answers.target.as_bytes());
            answers.people.iter().for_each(|one| take(one.as_bytes()));
        }
    }

    /// Returns the questions at `indices`, in that order, about the same images.
    pub(super) fn select(&self, indices: &[u32]) -> Questions {
        let at = |i: &u32| *i as usize;
        Questions {
            prompts: indices.iter().map(|i| self.prompts[at(i)].clone()).collect(),
            answers: indices.iter().map(|i| self.answers[at(i)].clone()).collect(),
            learnt: self.learnt,
            images: self.images.clone(),
            image_of: indices.iter().map(|i| self.image_of[at(i)]).collect(),
            tokens: self.tokens.as_ref().map(|tokens| tokens.select(indices)),
        }
    }
}

impl Spelled {
    fn select(&self, indices: &[u32]) -> Spelled {
        Spelled { prompts: self.prompts.select(indices), answered: self.answered.select(indices) }
    }

    /// Returns the most tokens of an answer with its end, A.
    pub fn longest_answer(&self) -> usize {
        (0..self.prompts.lengths.len()).map(|i| self.answer(i)).max().unwrap_or(0)
    }

    /// Returns the number of tokens of answer i with its end.
    pub fn answer(&self, i: usize) -> usize {
        (self.answered.lengths[i] - self.prompts.lengths[i]) as usize
    }

    /// Returns what is learnt of each question, `[N, A, 2]`: the places of tokens, and the tokens that follow there. Where
    /// an answer is shorter than A, place 0 is followed by −1.
    pub fn targets(&self) -> Vec<i64> {
        let (longest, row) = (self.longest_answer(), 2 * self.answered.longest());
        let mut all = Vec::with_capacity(2 * longest * self.prompts.lengths.len());
        for (i, start) in self.prompts.lengths.iter().enumerate() {
            for place in 0..longest {
                let here = *start as usize + place;
                match place < self.answer(i) {
                    true => all.extend([here as i64 - 1, i64::from(self.answered.numbers[i * row + here])]),
                    false => all.extend([0, -1]),
                }
            }
        }
        all
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

    #[test]
    fn a_selection_of_pairs_keeps_second_texts_and_kinds() {
        let mut texts = Texts::pairs(vec!["a".into(), "b".into()], vec!["c".into(), "d e".into()]);
        texts.tokens = Some(Tokens::with_kinds(&[&[7, 8], &[9, 10, 11]], &[&[0, 1], &[0, 1, 1]]));
        let one = texts.select(&[0]);
        assert_eq!(one.prompts.seconds, Some(vec!["c".to_string()]));
        assert_eq!(one.tokens.unwrap().numbers, [7, 8, 1, 1, 0, 1]);
        assert_eq!(texts.tokens.unwrap().tensor().size(), [2, 3, 3]);
    }

    #[test]
    fn targets_follow_the_tokens_before_them() {
        let prompts = Tokens::new(&[vec![1, 5, 6], vec![1, 7]]);
        let answered = Tokens::new(&[vec![1, 5, 6, 40, 2], vec![1, 7, 41, 42, 2]]);
        let spelled = Spelled { prompts, answered };
        assert_eq!(spelled.longest_answer(), 3);
        assert_eq!(spelled.targets(), [2, 40, 3, 2, 0, -1, 1, 41, 2, 42, 3, 2]);
        assert_eq!(spelled.select(&[1]).targets(), [1, 41, 2, 42, 3, 2]);
    }
}
