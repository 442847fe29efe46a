//! Questions about images, with the answers of people, and their tokens once a tokenizer has seen them.

use super::images::Images;
use super::texts::Tokens;

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
    fn targets_follow_the_tokens_before_them() {
        let prompts = Tokens::new(&[vec![1, 5, 6], vec![1, 7]]);
        let answered = Tokens::new(&[vec![1, 5, 6, 40, 2], vec![1, 7, 41, 42, 2]]);
        let spelled = Spelled { prompts, answered };
        assert_eq!(spelled.longest_answer(), 3);
        assert_eq!(spelled.targets(), [2, 40, 3, 2, 0, -1, 1, 41, 2, 42, 3, 2]);
        assert_eq!(spelled.select(&[1]).targets(), [1, 41, 2, 42, 3, 2]);
    }
}
