//! What every store must do, held against the pure functions of `limit`. A store joins with one `contract!` line.

#[cfg(test)]
mod subject;
#[cfg(test)]
mod suite;

/// The whole suite for one store; `$make` gives a subject with nothing in it.
macro_rules! contract {
    ($store:ident, $make:expr, [$($property:ident),+ $(,)?]) => {
        mod $store {
            $(
                #[test]
                fn $property() {
                    crate::suite::$property(&$make);
                }
            )+
        }
    };
}

contract!(
    memory,
    crate::subject::InMemory::new(100_000),
    [
        histories_come_out_as_computed,
        steps_back_come_out_as_computed,
        answers_come_in_the_order_of_the_charges,
        a_descriptor_sent_twice_sees_its_own_first_charge,
        threads_share_exactly_the_limit,
        one_thread_s_key_is_not_another_s,
        a_changed_number_counts_on,
        nobody_waits_longer_than_it_can,
    ]
);

// Keys come and go all the time here, most of the room being taken by others.
contract!(
    crowded_memory,
    crate::subject::InMemory::crowded(2_000),
    [histories_come_out_as_computed, threads_share_exactly_the_limit]
);
