//! What must hold for any bytes that are given as a rules file. Run by the fuzz target and, on mutations of real files, by
//! `tests/real_configs.rs`.

use bytes::Bytes;
use tidegate::{
    descriptor::Entry,
    rules::{LoadOptions, Lookup, Problem, RuleFile, RuleSet},
};

/// Panics if an invariant does not hold.
pub fn check(bytes: &[u8]) {
    let file = RuleFile { name: "any.yaml".to_owned(), bytes: bytes.to_vec() };
    let files = std::slice::from_ref(&file);
    match RuleSet::load(files, &LoadOptions::default()) {
        Err(problems) => {
            assert!(problems.total() > 0, "a refusal without a reason");
            problems.iter().for_each(|problem| check_message(problem, bytes));
        }
        Ok(loaded) => {
            loaded.warnings.iter().for_each(|warning| check_message(warning, bytes));
            let options = LoadOptions { previous: Some(&loaded.rules), ..LoadOptions::default() };
            let again = RuleSet::load(files, &options).expect("what loads, loads again").rules;
            assert_eq!(loaded.rules.dump(), again.dump());
            look_up_its_own_words(&again, bytes);
        }
    }
}

fn check_message(problem: &Problem, bytes: &[u8]) {
    let said = problem.to_string();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(!said.contains(|c: char| c.is_control()), "{said:?}");
    assert!(said.len() < 8_192, "{} bytes", said.len());
    assert!(problem.line >= 1 && problem.column >= 1, "{said}");
    assert!(problem.line as usize <= bytes.len() + 1, "{said}");
}

/// Asks for descriptors made of the file's own words: any answer will do, and one that names a rule names one of the set.
fn look_up_its_own_words(rules: &RuleSet, bytes: &[u8]) {
    let words: Vec<Bytes> = bytes
        .split(|byte| b" \n\r\t:,[]{}\"'".contains(byte))
        .filter(|word| !word.is_empty())
        .take(40)
        .map(Bytes::copy_from_slice)
        .collect();
    for domain in &words {
        for depth in 1..4 {
            for window in words.windows(2 * depth) {
                let entry = |pair: &[Bytes]| Entry { key: pair[0].clone(), value: pair[1].clone() };
                let entries: Vec<Entry> = window.chunks_exact(2).map(entry).collect();
                if let Lookup::Found(found) = rules.lookup(domain, &entries) {
                    assert!(rules.rules().any(|rule| std::ptr::eq(rule, found.rule)));
                    assert!(found.shared.is_empty() || found.shared.len() == entries.len());
                    rules.stat_key(domain, &entries);
                }
            }
        }
    }
}
