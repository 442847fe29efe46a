//! The tokens of prompts with an image. The placeholder of the image is split out before the text is cut into tokens: each
//! side is cut alone, and between the sides stands one token for each patch. Where the start token stands, what ends a prompt, and
//! how an answer follows it is a matter of the [family](Asking).

use std::path::Path;

use anyhow::{Context, Result, ensure};
use rayon::prelude::*;
use tch::{Device, Kind, Tensor};

use super::Sighted;
use crate::data::fields::{Fields, IDS, KINDS, MASK, PIXELS};
use crate::data::read::vqa::IMAGE;
use crate::data::{Interpolation, Learnt, Questions, Spelled, Tokens};
use crate::model::families::sighted::{Asking, Start};
use crate::model::language::Tokenizer;
use crate::model::preparation::{Example, Normalize, Preparation, Preprocess, Texts, Wording};

/// The tokenizer of a network that sees images.
pub struct QuestionTokenizer {
    pub tokenizer: Tokenizer,
    pub asking: Asking,
    /// Whether the network takes the kinds of tokens: 0 in a prompt, and 1 in the answer behind it.
    pub has_kinds: bool,
    /// The token of a patch.
    pub image: u32,
    /// The number of patches of an image.
    pub patches: usize,
    /// The number of pixels per side of an image.
    pub image_side: i64,
    pub normalize: Normalize,
}

impl Sighted {
    /// Opens the tokenizer of the network in a folder.
    ///
    /// # Errors
    /// Fails if the folder has none, or one that does not belong to the network.
    pub(super) fn questions(&self, folder: &Path) -> Result<QuestionTokenizer> {
        let Sighted { language, sight, .. } = self;
        Ok(QuestionTokenizer {
            tokenizer: Tokenizer::open(folder, language.geometry.vocabulary, language.tokens as usize)?,
            asking: sight.eyes.family.asking,
            has_kinds: self.reads_prompt_whole(),
            image: sight.eyes.token as u32,
            patches: sight.patches() as usize,
            image_side: sight.eyes.image_size,
            normalize: sight.normalize,
        })
    }
}

impl QuestionTokenizer {
    /// Returns the tokens of a prompt with one image.
    ///
    /// # Errors
    /// Fails if the prompt has no placeholder of an image, or several.
    pub fn prompt(&self, prompt: &str) -> Result<Vec<u32>> {
        let (before, after) = sides(prompt)?;
        let mut ids = self.seen(before)?;
        ids.extend(self.tokenizer.plain(&self.ended(after))?);
        Ok(ids)
    }

    /// Returns the text behind the image with what ends every prompt.
    fn ended(&self, after: &str) -> String {
        format!("{after}{}", self.asking.ending)
    }

    /// Returns the tokens of the text before the image, those of the image, and the start token where it follows them.
    fn seen(&self, before: &str) -> Result<Vec<u32>> {
        let mut ids = match self.asking.start {
            Start::Front => self.tokenizer.started(before)?,
            Start::BehindImage => self.tokenizer.plain(before)?,
        };
        ids.extend(std::iter::repeat_n(self.image, self.patches));
        if self.asking.start == Start::BehindImage {
            let start = self.tokenizer.start();
            ids.push(start.context("the tokenizer names no start token (bos_token), which follows the image")?);
        }
        Ok(ids)
    }

    /// Returns the tokens of a prompt, then those of the prompt with its answer and the end-of-text token.
    fn answered(&self, prompt: &str, answer: &str) -> Result<[Vec<u32>; 2]> {
        let (before, after) = sides(prompt)?;
        let after = self.ended(after);
        let (mut seen, asked) = (self.seen(before)?, self.tokenizer.plain(&after)?);
        let answer = match self.asking.between {
            None => self.tokenizer.plain(answer)?,
            Some(between) => {
                let whole = self.tokenizer.plain(&format!("{after}{between}{answer}"))?;
                let own = whole.strip_prefix(asked.as_slice()).with_context(|| {
                    format!(
                        "the tokenizer joins the end of the prompt with the answer `{answer}`: end data.*.prompt with a colon"
                    )
                })?;
                own.to_vec()
            }
        };
        let end =
            self.tokenizer.end().context("the tokenizer names no end-of-text token (eos_token), which ends answers")?;
        seen.extend(&asked);
        let mut all = seen.clone();
        all.extend(answer.iter().chain([&end]));
        Ok([seen, all])
    }

    /// Returns texts of which the first tokens, as many as `prompts` has of each, are those of their prompts.
    fn packed(&self, texts: &[Vec<u32>], prompts: &[Vec<u32>]) -> Tokens {
        if !self.has_kinds {
            return Tokens::new(texts);
        }
        let kind = |place: usize, prompt: &Vec<u32>| u32::from(place >= prompt.len());
        let of = |(text, prompt): (&Vec<u32>, &Vec<u32>)| (0..text.len()).map(|place| kind(place, prompt)).collect();
        let kinds: Vec<Vec<u32>> = texts.iter().zip(prompts).map(of).collect();
        Tokens::with_kinds(&slices_of(texts), &slices_of(&kinds))
    }

    /// Returns the tokens of all questions of the split `name`.
    ///
    /// # Errors
    /// Fails if a prompt has no image, or if it is longer with its answer than the network reads.
    pub fn spelled(&self, name: &str, questions: &Questions) -> Result<Spelled> {
        let most = self.tokenizer.most();
        let one = |at: usize| {
            let answers = &questions.answers[at];
            let shown = || format!("{name}: question {}", answers.question);
            let both = match questions.learnt {
                Learnt::Answer => self.answered(&questions.prompts[at], &answers.target),
                Learnt::Class => self.prompt(&questions.prompts[at]).map(|prompt| [prompt.clone(), prompt]),
            };
            let both = both.with_context(shown)?;
            let (found, seen) = (both[1].len(), both[1].iter().filter(|id| **id == self.image).count());
            ensure!(
                seen == self.patches,
                "{}: its texts spell the token of an image, of which {} stand for the patches of this one: leave that word out of them",
                shown(),
                self.patches
            );
            ensure!(
                found <= most,
                "{}: has {found} tokens with {} of the image and its answer, and checkpoint.max_tokens is {most}: raise it \
                 as far as the network's context allows",
                shown(),
                self.patches
            );
            Ok(both)
        };
        let all = (0..questions.prompts.len()).into_par_iter().map(one).collect::<Result<Vec<_>>>()?;
        let (prompts, answered): (Vec<_>, Vec<_>) = all.into_iter().map(|[prompt, whole]| (prompt, whole)).unzip();
        Ok(Spelled { prompts: self.packed(&prompts, &prompts), answered: self.packed(&answered, &prompts) })
    }
}

impl Preparation for QuestionTokenizer {
    /// Turns the bytes of images into numbers in f32; the network normalises them.
    fn prepare(&self, stored: &Fields) -> Fields {
        let pixels = stored.get(PIXELS).to_kind(Kind::Float);
        stored.again().with(PIXELS, pixels)
    }

    fn questions(&self, name: &str, questions: &Questions) -> Result<Option<Spelled>> {
        self.spelled(name, questions).map(Some)
    }

    fn image_side(&self) -> i64 {
        self.image_side
    }

    fn wording(&self) -> Option<&dyn Wording> {
        Some(&self.tokenizer)
    }

    fn texts(&self) -> Option<Texts> {
        Some(Texts {
            kinds: self.has_kinds,
            tokens: self.tokenizer.most() as i64,
            image: Some((self.image_side, self.normalize)),
        })
    }

    /// Returns prompts that begin with the first token, or none, and the image. Where tokens have kinds, the last ones are those of an
    /// answer.
    fn example(&self, vocabulary: i64, _: Option<[i64; 2]>) -> Option<Example> {
        let (image, patches, side) = (i64::from(self.image), self.patches as i64, self.image_side);
        let length = (patches + Example::TOKENS).min(self.tokenizer.most() as i64);
        let first = i64::from(length > patches);
        let [ids, mask] = Example::texts(vocabulary, length, first + patches);
        // No other token is that of an image.
        let ids = ids.where_self(&ids.ne(image), &(&ids - 1).abs());
        let _ = ids.narrow(1, first, patches).fill_(image);
        let images = Example::bytes([side, side]);
        // Images have the size of the network, so that no filter is needed.
        let prepare = Preprocess::new(side, self.normalize, Interpolation::Bicubic, (Device::Cpu, Kind::Float));
        let values = prepare.normalise(&prepare.unit(&images));
        let mut example = Example::of_texts(&[ids.shallow_clone(), mask.shallow_clone()]);
        let mut stored = vec![(IDS, ids), (MASK, mask)];
        if self.has_kinds {
            let answered = patches + first + (length - patches - first) / 2;
            let places = Tensor::arange(length, (Kind::Int64, Device::Cpu)).ge(answered).to_kind(Kind::Int64);
            let kinds = places.expand_as(&stored[0].1).contiguous();
            example.taken.push(("token_type_ids", kinds.shallow_clone()));
            stored.push((KINDS, kinds));
        }
        example.taken.push(("pixel_values", values));
        stored.push((PIXELS, images));
        example.stored = Fields::new(stored).for_all();
        Some(example)
    }
}

fn slices_of(all: &[Vec<u32>]) -> Vec<&[u32]> {
    all.iter().map(Vec::as_slice).collect()
}

/// Returns the texts before and after the image.
fn sides(prompt: &str) -> Result<(&str, &str)> {
    let sides = prompt.split_once(IMAGE);
    let (before, after) =
        sides.with_context(|| format!("the prompt `{prompt}` has no {IMAGE}, and there is an image"))?;
    ensure!(!after.contains(IMAGE), "the prompt `{prompt}` has several {IMAGE}, and there is one image");
    Ok((before, after))
}
