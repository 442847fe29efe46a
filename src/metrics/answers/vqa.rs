//! The official accuracy of visual question answering (Antol et al. 2015, arXiv 1505.00468; `vqaEval.py` of
//! GT-Vision-Lab/VQA), and what EvalAI makes of it, with the changes of an answer's wording that both make before answers are compared.

/// Returns the official accuracy of an answer, in [0, 1]: the mean over ten subsets of nine people of min(1, k / 3), where k
/// of the nine gave the same answer. The wording of answers is changed before they are compared only if the people do not
/// all agree; where they do, the comparison is literal.
pub fn accuracy(answer: &str, people: &[String]) -> f64 {
    let people: Vec<String> = people.iter().map(|one| one_line(one)).collect();
    let answer = one_line(answer);
    if people.iter().all(|one| *one == people[0]) {
        return mean_of_subsets(&answer, &people);
    }
    let normalised = |text: &String| with_plain_words(&without_marks(text));
    let people: Vec<String> = people.iter().map(normalised).collect();
    mean_of_subsets(&normalised(&answer), &people)
}

/// Returns the accuracy of an answer as EvalAI's processor and LLaVA's evaluation compute it: all wordings are changed, also
/// where people agree, and before that commas and question marks are deleted and a space is put before `'s`.
pub fn evalai_accuracy(answer: &str, people: &[String]) -> f64 {
    let people: Vec<String> = people.iter().map(|one| evalai_wording(one)).collect();
    mean_of_subsets(&evalai_wording(answer), &people)
}

/// Returns the wording in which EvalAI compares an answer.
fn evalai_wording(text: &str) -> String {
    let text = text.to_lowercase().replace([',', '?'], "").replace("'s", " 's");
    with_plain_words(&without_marks(&one_line(&text)))
}

/// Returns the share of people who gave the most common answer, in its literal wording.
pub fn human_confidence(people: &[String]) -> f64 {
    let people: Vec<String> = people.iter().map(|one| one_line(one)).collect();
    let most = people.iter().map(|one| people.iter().filter(|other| *other == one).count()).max().unwrap_or(0);
    most as f64 / people.len().max(1) as f64
}

/// Returns the mean over all people of min(1, k / 3), where k of the others gave `answer`.
fn mean_of_subsets(answer: &str, people: &[String]) -> f64 {
    if people.is_empty() {
        return 0.0;
    }
    let same = people.iter().filter(|one| *one == answer).count();
    let left_out = |one: &String| (same - usize::from(one == answer)).min(3) as f64 / 3.0;
    people.iter().map(left_out).sum::<f64>() / people.len() as f64
}

/// The marks that are taken out of an answer, in this order.
const MARKS: [char; 21] =
    [';', '/', '[', ']', '"', '{', '}', '(', ')', '=', '+', '\\', '_', '-', '>', '<', '@', '`', ',', '?', '!'];

/// Words for numbers, with the digits that replace them.
const NUMBERS: [(&str, &str); 12] = [
    ("none", "0"),
    ("zero", "0"),
    ("one", "1"),
    ("two", "2"),
    ("three", "3"),
    ("four", "4"),
    ("five", "5"),
    ("six", "6"),
    ("seven", "7"),
    ("eight", "8"),
    ("nine", "9"),
    ("ten", "10"),
];

const ARTICLES: [&str; 3] = ["a", "an", "the"];

/// The published contractions, one a line: the word without its apostrophes, a tab, and the word with them. One of them,
/// `somebody'd`, loses its apostrophe instead. Published entries with capitals or without effect are left out, since words are
/// in lower case when they are looked up.
const CONTRACTIONS: &str = include_str!("contractions.tsv");

/// Returns an answer with spaces for line breaks and tabs, and without spaces at its ends.
pub fn one_line(text: &str) -> String {
    text.replace(['\n', '\t'], " ").trim().to_string()
}

/// Returns an answer without marks and without the periods that no digit follows. A mark is deleted wherever it stands if it
/// stands beside a space somewhere, or if the answer has a comma between digits; otherwise a space replaces it.
pub fn without_marks(text: &str) -> String {
    let mut out = text.to_string();
    let comma = has_comma_between_digits(text);
    for mark in MARKS.into_iter().filter(|mark| text.contains(*mark)) {
        let beside = text.contains(&format!("{mark} ")) || text.contains(&format!(" {mark}"));
        out = out.replace(mark, if beside || comma { "" } else { " " });
    }
    without_periods(&out)
}

fn has_comma_between_digits(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.windows(3).any(|three| three[0].is_ascii_digit() && three[1] == b',' && three[2].is_ascii_digit())
}

/// Deletes the first 32 periods that no digit follows. The limit is a slip of the published program, which passes a flag
/// of the value 32 where the number of replacements belongs.
fn without_periods(text: &str) -> String {
    const MOST: usize = 32;
    let (mut out, mut deleted, mut rest) = (String::with_capacity(text.len()), 0, text.chars().peekable());
    while let Some(letter) = rest.next() {
        if letter == '.' && deleted < MOST && !rest.peek().is_some_and(char::is_ascii_digit) {
            deleted += 1;
        } else {
            out.push(letter);
        }
    }
    out
}

/// Returns an answer in lower case, with digits for the words of numbers, without articles, and with the apostrophes of
/// contractions; single spaces separate its words.
pub fn with_plain_words(text: &str) -> String {
    let lower = text.to_lowercase();
    let digits = |word| NUMBERS.iter().find(|(name, _)| *name == word).map_or(word, |(_, digits)| *digits);
    let words = lower.split_whitespace().map(digits).filter(|word| !ARTICLES.contains(word));
    let whole: Vec<&str> = words.map(|word| contraction(word).unwrap_or(word)).collect();
    whole.join(" ")
}

fn contraction(word: &str) -> Option<&'static str> {
    let pairs = CONTRACTIONS.lines().filter_map(|line| line.split_once('\t'));
    pairs.into_iter().find(|(bare, _)| *bare == word).map(|(_, whole)| whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn people(answers: &[(&str, usize)]) -> Vec<String> {
        answers.iter().flat_map(|(answer, count)| vec![answer.to_string(); *count]).collect()
    }

    /// `python3 -c "print([sum(min(1, (k - (i < k)) / 3) for i in range(10)) / 10 for k in range(5)])"`
    #[test]
    fn four_people_of_ten_make_an_answer_right() {
        for (same, expected) in [(0, 0.0), (1, 0.3), (2, 0.6), (3, 0.9), (4, 1.0)] {
            let found = accuracy("cat", &people(&[("cat", same), ("dog", 10 - same)]));
            assert!((found - expected).abs() < 1e-12, "{same}: {found}");
        }
    }

    #[test]
    fn ten_equal_answers_are_compared_literally() {
        let all = people(&[("The cat", 10)]);
        assert_eq!((accuracy("cat", &all), accuracy(" The\tcat\n", &all)), (0.0, 1.0));
        assert_eq!(evalai_accuracy("cat", &all), 1.0);
        assert!(accuracy("cat", &people(&[("The cat", 9), ("dog", 1)])) == 1.0);
    }

    #[test]
    fn confidence_is_the_share_of_the_most_common_answer() {
        assert_eq!(human_confidence(&people(&[("a", 3), ("b", 5), ("c", 2)])), 0.5);
    }

    #[test]
    fn marks_depend_on_the_spaces_beside_them() {
        assert_eq!(without_marks("black/white"), "black white");
        assert_eq!(without_marks("black / white/red"), "black  whitered");
        assert_eq!(without_marks("1,000-2"), "10002");
        assert_eq!(without_marks("yes, no"), "yes no");
    }

    #[test]
    fn periods_stay_before_digits_and_after_the_first_32() {
        assert_eq!(without_marks("3.5 a.m. .5"), "3.5 am .5");
        assert_eq!(without_marks(&".".repeat(40)), ".".repeat(8));
    }

    #[test]
    fn words_become_plain() {
        assert_eq!(with_plain_words("The  None an Apple DONT a"), "0 apple don't");
        assert_eq!(with_plain_words("somebody'd"), "somebodyd");
        assert_eq!(with_plain_words("a"), "");
    }
}
