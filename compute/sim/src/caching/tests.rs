//! 2Mark beside its test vectors, OPT, its bound, and other policies.

use eyas_types::EvictionPolicy;
use serde_json::Value;

use super::policies::id;
use super::*;

fn numbers(value: &Value) -> Vec<u64> {
    value
        .as_array()
        .expect("a list")
        .iter()
        .map(|number| number.as_u64().expect("a number"))
        .collect()
}

fn lists(value: &Value) -> Vec<Vec<u64>> {
    value.as_array().expect("a list").iter().map(numbers).collect()
}

struct Vector {
    name: String,
    problem: Problem,
    objects: usize,
    requests: Vec<CacheRequest>,
    fields: Value,
}

/// Histories with the cost of each request, the marks at the end, and the optimum.
fn vectors() -> Vec<Vector> {
    let all: Vec<Value> =
        serde_json::from_str(include_str!("../../tests/data/two_mark.json")).expect("JSON");
    let vector = |fields: Value| {
        let number = |name: &str| fields[name].as_u64().expect("a number");
        let problem = Problem {
            stores: number("N") as usize,
            slots: number("M") as usize,
            storage_cost: number("s"),
        };
        let requests = lists(&fields["requests_obj_store"]).into_iter();
        let requests = requests
            .map(|pair| CacheRequest { object: pair[0] as u32, store: pair[1] as usize })
            .collect();
        let name = format!("{} of {problem:?}", fields["name"]);
        Vector { name, problem, objects: number("objects") as usize, requests, fields }
    };
    all.into_iter().map(vector).collect()
}

#[test]
fn two_mark_does_what_is_written() {
    let vectors = vectors();
    assert_eq!(vectors.len(), 16);
    for Vector { name, problem, objects, requests, fields } in vectors {
        let mut group = TwoMarked::new(problem);
        let costs: Vec<_> = requests.iter().map(|request| group.request(*request)).collect();
        assert_eq!(costs, numbers(&fields["costs"]), "{name}");
        let object =
            |wanted| (0..objects as u32).find(|object| id(*object) == wanted).expect("one of them");
        let mut globally_marked = Vec::new();
        for store in 0..problem.stores {
            let found = group.policy().objects(store);
            let here: Vec<u64> = found.iter().map(|(id, ..)| object(*id).into()).collect();
            assert_eq!(here, numbers(&fields["final_stores"][store]), "{name}, store {store}");
            let marked = found.iter().filter(|(_, local, _)| *local);
            let marked: Vec<u64> = marked.map(|(id, ..)| object(*id).into()).collect();
            assert_eq!(
                marked,
                numbers(&fields["final_local_marks"][store]),
                "{name}, store {store}"
            );
            globally_marked.extend(
                found.iter().filter(|(.., global)| *global).map(|(id, ..)| u64::from(object(*id))),
            );
        }
        globally_marked.sort_unstable();
        assert_eq!(globally_marked, numbers(&fields["final_global_marks"]), "{name}");
    }
}

#[test]
fn the_optimum_is_found() {
    let mut known = 0;
    for Vector { name, problem, objects, requests, fields } in vectors() {
        let optimum = Arrangements::new(problem, objects).expect("few").optimum(&requests);
        if let Some(expected) = fields["opt"].as_f64() {
            assert_eq!(optimum as f64, expected, "{name}");
            known += 1;
        }
        assert!(floor(problem, &requests) <= optimum, "{name}");
        let cost = cost(&mut TwoMarked::new(problem), requests.iter().copied());
        let bound = TwoMark::bound(problem.stores, problem.slots, problem.storage_cost as f64);
        assert!(
            optimum <= cost && cost as f64 <= bound * optimum as f64,
            "{name}: {cost} against {optimum}"
        );
    }
    assert!(known >= 10);
    let many = Problem { stores: 10, slots: 10, storage_cost: 2 };
    assert_eq!(Arrangements::new(many, 20).err(), Some(TooMany));
}

#[test]
fn the_worst_ratio_is_within_the_bound() {
    let worst =
        [(1, 2, 5, 2.00), (2, 1, 1, 3.00), (2, 1, 2, 2.50), (2, 1, 5, 2.20), (2, 1, 20, 2.05)];
    for (stores, slots, storage_cost, expected) in worst {
        let problem = Problem { stores, slots, storage_cost };
        let ratio = worst_ratio(problem, stores * slots + 1).expect("few");
        assert!((ratio - expected).abs() < 0.005, "{problem:?}: {ratio} and not {expected}");
        assert!(ratio <= TwoMark::bound(stores, slots, storage_cost as f64) + 1e-9);
    }
}

/// Requests for the objects at store 0, one after the other.
fn at_one_store(objects: impl IntoIterator<Item = u32>) -> Vec<CacheRequest> {
    objects.into_iter().map(|object| CacheRequest { object, store: 0 }).collect()
}

#[test]
fn the_floor_of_one_store_is_its_optimum() {
    let problem = Problem { stores: 1, slots: 3, storage_cost: 4 };
    let arrangements = Arrangements::new(problem, 6).expect("few");
    let mut dice = crate::random::Random::new(7);
    for _ in 0..50 {
        let requests = at_one_store((0..40).map(|_| dice.below(6) as u32));
        assert_eq!(floor(problem, &requests), arrangements.optimum(&requests));
    }
}

#[test]
fn a_store_alone_evicts_by_its_policy() {
    let problem = Problem { stores: 2, slots: 2, storage_cost: 10 };
    let by = |policy, requests: Vec<CacheRequest>| {
        cost(&mut IndependentStores::new(problem, policy), requests)
    };
    // LRU evicts 1 for 3; FIFO evicts 0.
    let requests = at_one_store([0, 1, 0, 3, 0]);
    assert_eq!(
        (by(EvictionPolicy::Lru, requests.clone()), by(EvictionPolicy::Fifo, requests)),
        (30, 40)
    );
    // 2Mark evicts 0 for 3, because both are marked, and then 1, which is not marked again.
    assert_eq!(by(EvictionPolicy::TwoMark, at_one_store([0, 1, 3, 0, 3])), 40);
    // An object of the other store is moved, and is then no longer there.
    let elsewhere = [0, 1, 0].map(|store| CacheRequest { object: 0, store });
    EvictionPolicy::ALL
        .iter()
        .for_each(|policy| assert_eq!(by(*policy, elsewhere.to_vec()), 12, "{policy}"));
}
