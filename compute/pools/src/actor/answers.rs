//! What clients ask of the actor.

use super::*;

impl PoolsActor {
    pub(super) fn answer(
        &mut self,
        now_us: u64,
        request: PoolsRequest,
        reply: Reply,
        actions: &mut Vec<(String, PoolAction)>,
    ) {
        let answer = match request {
            PoolsRequest::Add { name, mut options, is_tried } => {
                match self.check_new(&name, &mut options) {
                    Ok(system) if is_tried => {
                        self.adding.insert(name.clone());
                        return self.try_new(name, options, system, reply);
                    }
                    Ok(system) => self.add(now_us, &name, *options, system),
                    Err(why) => Err(why),
                }
            }
            PoolsRequest::Show { name: None } => Ok(views(now_us, self.pools.values(), false)),
            PoolsRequest::Show { name: Some(name) } => {
                self.find(&name).map(|pool| views(now_us, [pool].into_iter(), true))
            }
            PoolsRequest::Pause { name } => self.set_status(
                now_us,
                &name,
                PoolStatus::Paused("a user has paused it".into()),
                actions,
            ),
            PoolsRequest::Resume { name } => {
                self.set_status(now_us, &name, PoolStatus::Active, actions)
            }
            PoolsRequest::Remove { name, is_forced } => {
                self.remove(now_us, &name, is_forced, actions)
            }
            PoolsRequest::Log { name, request, stream } => {
                match self.log_of(&name, request, stream) {
                    Ok(log) => {
                        tokio::spawn(async move { reply.send(log.read().await) });
                        return;
                    }
                    Err(why) => Err(why),
                }
            }
            PoolsRequest::Try { name } => match self.find(&name) {
                Ok(pool) => {
                    let (system, plan) = (pool.system.clone(), pool.tried_plan(now_us, TRIED));
                    tokio::spawn(async move {
                        let answer = system
                            .try_out(&plan)
                            .await
                            .map(PoolsAnswer::Text)
                            .map_err(PoolsError::from);
                        let _ = reply.send(answer);
                    });
                    return;
                }
                Err(why) => Err(why),
            },
        };
        self.answers.push((reply, answer));
    }

    fn find(&self, name: &str) -> Result<&Pool, PoolsError> {
        self.pools.get(name).ok_or_else(|| PoolsError::NoSuchPool(name.into()))
    }

    fn check_new(
        &self,
        name: &str,
        options: &mut PoolOptions,
    ) -> Result<Arc<dyn BatchSystem>, PoolsError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty()
            || name.len() > MAX_NAME
            || !name.chars().all(is_plain)
            || name.starts_with('-')
        {
            return Err(PoolsError::Name(name.into()));
        }
        if self.pools.contains_key(name) || self.adding.contains(name) {
            return Err(PoolsError::Exists(name.into()));
        }
        if self.pools.len() + self.adding.len() >= MAX_POOLS {
            return Err(PoolsError::TooMany);
        }
        check_options(options)?;
        systems::settle(options)?;
        systems::of(options).ok_or_else(|| PoolsError::NoSuchSystem {
            name: options.system.clone(),
            known: systems::names().collect::<Vec<_>>().join(", "),
        })
    }

    fn try_new(
        &self,
        name: String,
        options: Box<PoolOptions>,
        system: Arc<dyn BatchSystem>,
        reply: Reply,
    ) {
        let plan = RequestPlan {
            pool: name.clone(),
            number: TRIED,
            nodes: 1,
            mark: TRIED_MARK.into(),
            options: Arc::new((*options).clone()),
            excluded: Vec::new(),
            folder: PoolFolder::of(&self.config.folder, &name).request(TRIED),
            eyas: self.config.eyas.clone(),
        };
        let finished = self.finished.clone();
        tokio::spawn(async move {
            let answer = system.try_out(&plan).await;
            let _ = finished.send(CommandResult::Tried { name, options, answer, reply });
        });
    }

    pub(super) fn add(
        &mut self,
        now_us: u64,
        name: &str,
        options: PoolOptions,
        system: Arc<dyn BatchSystem>,
    ) -> Result<PoolsAnswer, PoolsError> {
        let pool =
            Pool::add(&self.config.folder, name, options, system, &self.config.eyas, now_us)?;
        // Its first nodes are requested when the dispatcher reports the work.
        self.pools.insert(name.into(), pool);
        Ok(PoolsAnswer::Done)
    }

    fn set_status(
        &mut self,
        now_us: u64,
        name: &str,
        status: PoolStatus,
        actions: &mut Vec<(String, PoolAction)>,
    ) -> Result<PoolsAnswer, PoolsError> {
        let pool = self.pools.get_mut(name).ok_or_else(|| PoolsError::NoSuchPool(name.into()))?;
        with(pool, actions, |pool, actions| pool.set_status(now_us, status, actions));
        Ok(PoolsAnswer::Done)
    }

    fn remove(
        &mut self,
        now_us: u64,
        name: &str,
        is_forced: bool,
        actions: &mut Vec<(String, PoolAction)>,
    ) -> Result<PoolsAnswer, PoolsError> {
        let pool = self.pools.get_mut(name).ok_or_else(|| PoolsError::NoSuchPool(name.into()))?;
        with(pool, actions, |pool, actions| {
            pool.set_status(now_us, PoolStatus::Closing, actions);
            if is_forced {
                pool.handle(now_us, PoolEvent::GivenUp, actions);
            }
        });
        Ok(PoolsAnswer::Done)
    }

    fn log_of(
        &self,
        name: &str,
        request: Option<u64>,
        stream: RequestFile,
    ) -> Result<RequestLog, PoolsError> {
        let pool = self.find(name)?;
        let number = match request {
            Some(number) if pool.has_request(number) => number,
            Some(request) => return Err(PoolsError::NoSuchRequest { pool: name.into(), request }),
            None => pool.newest_request().ok_or_else(|| PoolsError::NoRequest(name.into()))?,
        };
        let file = match stream {
            RequestFile::Stderr => "stderr",
            RequestFile::Stdout => "stdout",
            RequestFile::Script => "script.sh",
        };
        let open = pool
            .open_jobs()
            .find(|(open, _)| *open == number)
            .map(|(_, job)| (pool.system.clone(), job));
        Ok(RequestLog { open, path: pool.folder().request(number).join(file) })
    }
}

fn views<'a>(now_us: u64, pools: impl Iterator<Item = &'a Pool>, in_full: bool) -> PoolsAnswer {
    PoolsAnswer::Pools(pools.map(|pool| pool.view(now_us, in_full)).collect())
}

/// A file that the nodes of a request write.
struct RequestLog {
    /// The batch system and the job of a request that is open.
    open: Option<(Arc<dyn BatchSystem>, BatchJob)>,
    path: PathBuf,
}

impl RequestLog {
    async fn read(self) -> Result<PoolsAnswer, PoolsError> {
        if let Some((system, job)) = self.open {
            system.bring_log(&job).await?;
        }
        Ok(PoolsAnswer::Text(store::end_of(&self.path, MAX_LOG_BYTES)?))
    }
}

fn check_options(options: &PoolOptions) -> Result<(), PoolsError> {
    let is_amount = |amount: f64| amount.is_finite() && amount >= 0.0;
    let caps = [options.max_node_hours, options.max_cost, Some(options.price)];
    let wrong = match options {
        PoolOptions { max_nodes: 0, .. } => "--max-nodes must be at least 1",
        PoolOptions { min_nodes, max_nodes, .. } if min_nodes > max_nodes => {
            "--min-nodes is larger than --max-nodes"
        }
        PoolOptions { time_limit_us, .. } if *time_limit_us < 1_000_000 => {
            "--time-limit must be at least 1s"
        }
        PoolOptions { cpus: Some(0), .. } => "--cpus must be at least 1",
        _ if !caps.into_iter().flatten().all(is_amount) => {
            "prices and limits must be numbers of at least 0"
        }
        _ => return Ok(()),
    };
    Err(PoolsError::Options(wrong))
}
