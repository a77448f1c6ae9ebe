//! Tasks that read files by their names: which places executors are told.

use eyas_sched::MAX_HINTS;
use eyas_types::{Name, NameChange, NamedFile};
use eyas_wire::MINOR_OF_NAMES;
use eyas_wire::client::{NAMES_PART, NamesQuery};
use eyas_wire::executor::{AssignedInput, PeerHint, TransferAddress};
use eyas_wire::view::NamedFileView;

use super::*;

impl Dispatcher {
    fn change(&mut self, change: NameChange) {
        self.handle.names.change(&[change]).unwrap();
    }

    fn register(&mut self, place: &str) {
        let (name, places) = ("a".into(), vec![place.into()]);
        self.change(NameChange::Register { name, places, size_bytes: Some(7), sha256: None });
    }

    /// The object of the name, as clients make it.
    fn named(&self) -> ObjectSpec {
        let query = NamesQuery::These(vec!["a".into()]);
        let view = self.handle.names.find(&query).unwrap().remove(0);
        let file = NamedFile {
            places: Vec::new(),
            size_bytes: view.size_bytes,
            sha256: view.sha256,
            registered_us: view.registered_us,
        };
        file.object(b"a", 7)
    }

    fn submit_reader(&mut self, object: ObjectSpec) -> JobId {
        let template = TaskTemplate::new(Program::Noop);
        let mut spec = JobSpec { templates: vec![template], ..JobSpec::default() };
        spec.push_objects(vec![object]).unwrap();
        let input = Input { from: InputFrom::Object(0), name: None };
        spec.push(&[TaskItem { template: 0, values: Vec::new(), inputs: vec![input] }]).unwrap();
        self.submit_spec(spec)
    }
}

/// The places that came before the one assignment, and the hints of its input.
fn assigned(messages: &[ToExecutor]) -> (Vec<Name>, Vec<PeerHint>) {
    let at = messages.iter().position(|message| matches!(message, ToExecutor::Assign(_)));
    let at = at.expect("a task is assigned");
    let [ToExecutor::Places(places), ToExecutor::Assign(assignment)] = &messages[at - 1..=at]
    else {
        panic!("no places: {messages:?}")
    };
    (places[0].1.clone(), assignment.inputs[0].holders.clone())
}

#[tokio::test]
async fn places_of_the_moment_go_before_an_assignment() {
    let mut dispatcher = Dispatcher::start();
    dispatcher.register("http://h/a");
    let object = dispatcher.named();
    dispatcher.submit_reader(object.clone());
    dispatcher.register("s3://b/a");
    dispatcher.restart();
    dispatcher.join(1);
    let (places, hints) = assigned(&dispatcher.sent());
    assert_eq!((places, hints), (vec!["http://h/a".into(), "s3://b/a".into()], Vec::new()));
    // The name is registered anew: its places have another content.
    dispatcher.change(NameChange::Unregister { name: "a".into(), places: Vec::new() });
    dispatcher.register("http://h/other");
    let job = dispatcher.submit_reader(object);
    let because = dispatcher.explain(task(job, 0)).because.join(" ");
    assert!(because.contains("`lfn://a` has no place with the content"), "{because}");
    dispatcher.join(1);
    assert_eq!(assigned(&dispatcher.sent()), (Vec::new(), Vec::new()));
}

#[tokio::test]
async fn places_of_many_inputs_come_in_several_messages() {
    let mut dispatcher = Dispatcher::start();
    let reader = dispatcher.join(1);
    let place = format!("http://h/{}", "x".repeat(4000));
    let changes: Vec<_> = (0..200)
        .map(|n| NameChange::Register {
            name: format!("{n}").into(),
            places: vec![place.as_str().into()],
            size_bytes: Some(7),
            sha256: None,
        })
        .collect();
    dispatcher.handle.names.change(&changes).unwrap();
    let query = NamesQuery::After { prefix: Name::default(), last: Name::default() };
    let input = |view: NamedFileView| {
        let NamedFileView { size_bytes, sha256, registered_us, .. } = view;
        let file = NamedFile { places: Vec::new(), size_bytes, sha256, registered_us };
        let object = file.object(&view.name, 7);
        AssignedInput { object, part: None, name: None, holders: Vec::new() }
    };
    let files = dispatcher.handle.names.find(&query).unwrap();
    let mut inputs: Vec<_> = files.into_iter().map(input).collect();
    // Each file is there twice.
    inputs.extend(inputs.clone());
    let messages = dispatcher.core.messages_of_places(reader, &mut inputs);
    let count = |message: &ToExecutor| match message {
        ToExecutor::Places(places) => places.len(),
        other => panic!("{other:?}"),
    };
    let counts: Vec<_> = messages.iter().map(count).collect();
    assert_eq!(counts, [66, 66, 66, 2]);
}

#[tokio::test]
async fn no_more_names_are_looked_up_than_a_message_holds() {
    let dispatcher = Dispatcher::start();
    let find = |count| dispatcher.handle.names.find(&NamesQuery::These(vec!["a".into(); count]));
    assert!(find(NAMES_PART).is_ok());
    let refused = find(NAMES_PART + 1).unwrap_err().to_string();
    assert_eq!(refused, "a request can look up 4096 names, and not 4097: look them up in parts");
}

#[tokio::test]
async fn an_executor_of_an_earlier_version_reads_no_names() {
    let mut dispatcher = Dispatcher::start();
    dispatcher.minor = MINOR_OF_NAMES - 1;
    dispatcher.join(1);
    dispatcher.register("http://h/a");
    let job = dispatcher.submit_reader(dispatcher.named());
    assert_eq!(dispatcher.phases(job), [Phase::Failed], "there is no other executor");
    let because = dispatcher.explain(task(job, 0)).because.join(" ");
    assert!(because.contains("does not read inputs by names (lfn://)"), "{because}");
}

#[tokio::test]
async fn an_executor_gives_others_the_file_on_the_disk_of_its_node() {
    let mut dispatcher = Dispatcher::start();
    dispatcher.core.caching = true;
    dispatcher.register("file://n/data/a");
    let object = dispatcher.named();
    let owner = dispatcher.join(1);
    dispatcher.submit_reader(object.clone());
    assert_eq!(assigned(&dispatcher.sent()), (vec!["file:///data/a".into()], Vec::new()));
    // It says what it could not read as it was told the place.
    let (name, place, why) = ("a".into(), "file:///data/a".into(), "no such file".to_owned());
    let messages = vec![FromExecutor::PassedOver { name, place, why }];
    dispatcher.core.handle(CoreMessage::Messages { executor: owner, messages });
    let files = dispatcher.handle.names.find(&NamesQuery::These(vec!["a".into()])).unwrap();
    let passed_over = files[0].places[0].passed_over.as_ref().unwrap();
    assert_eq!(passed_over.why, "no such file");
    // The other executor has another name. The one with the file is asked once.
    for _ in 0..2 {
        dispatcher.join(1);
        dispatcher.submit_reader(object.clone());
    }
    let messages = dispatcher.sent();
    let is_hold = |message: &&ToExecutor| matches!(message, ToExecutor::HoldNamed { .. });
    let holds: Vec<_> = messages.iter().filter(is_hold).collect();
    let places = vec!["file:///data/a".into()];
    let hold = ToExecutor::HoldNamed { object: object.clone(), holders: Vec::new(), places };
    assert_eq!(holds, [&hold]);
    let inputs = messages.iter().filter_map(|message| match message {
        ToExecutor::Assign(assignment) => Some(&assignment.inputs[0].holders[..]),
        _ => None,
    });
    let relays: Vec<_> = inputs.map(|holders| holders[0].is_relay && holders.len() == 1).collect();
    assert_eq!(relays, [true, true]);
    // It is asked last where others have the object.
    let reader = dispatcher.join(1);
    let transfer = TransferAddress { address: ([127, 0, 0, 1], 2).into(), proxy: None };
    let other = PeerHint { transfer, is_relay: false, others: 0 };
    let mut holders = vec![other; MAX_HINTS];
    dispatcher.core.named_places(reader, &object, &mut holders);
    assert_eq!((holders.len(), holders[0]), (MAX_HINTS, other));
    assert!(holders[MAX_HINTS - 1].is_relay && holders[MAX_HINTS - 2] == other);
    dispatcher.sent();
    // Once it is there, it is held no longer.
    dispatcher.store(owner, &object);
    dispatcher.settle();
    let release = ToExecutor::Release { object: object.id() };
    assert_eq!(dispatcher.sent(), [release]);
    let mut holders = vec![other];
    dispatcher.core.named_places(reader, &object, &mut holders);
    assert_eq!(holders.len(), 2);
    assert!(!holders[1].is_relay, "it has the object");
    assert_eq!(dispatcher.sent(), []);
    // What the scheduler has not ordered, it is not told of.
    dispatcher.core.own_disk_reads.insert((owner, object.id()));
    let reason = "no such file".to_owned();
    let messages = vec![FromExecutor::NotHeld { object: object.id(), reason }];
    dispatcher.core.handle(CoreMessage::Messages { executor: owner, messages });
    assert!(dispatcher.core.own_disk_reads.is_empty());
}
