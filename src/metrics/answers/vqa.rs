//! The official accuracy of visual question answering (Antol et al. 2015, arXiv 1505.00468; `vqaEval.py` of
//! GT-Vision-Lab/VQA), and what EvalAI makes of it.

use super::words::{one_line, with_plain_words, without_marks};

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
pub fn evalai_wording(text: &str) -> String {
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
}
