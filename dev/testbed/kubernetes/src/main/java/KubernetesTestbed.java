import io.fabric8.kubernetes.api.model.ContainerStateBuilder;
import io.fabric8.kubernetes.api.model.ContainerStatusBuilder;
import io.fabric8.kubernetes.api.model.EventBuilder;
import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodBuilder;
import io.fabric8.kubernetes.api.model.PodConditionBuilder;
import io.fabric8.kubernetes.api.model.PodStatus;
import io.fabric8.kubernetes.api.model.PodStatusBuilder;
import io.fabric8.kubernetes.api.model.Quantity;
import io.fabric8.kubernetes.api.model.Secret;
import io.fabric8.kubernetes.api.model.StatusBuilder;
import io.fabric8.kubernetes.api.model.Volume;
import io.fabric8.kubernetes.api.model.batch.v1.Job;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.server.mock.KubernetesCrudDispatcher;
import io.fabric8.kubernetes.client.server.mock.KubernetesMockServer;
import io.fabric8.kubernetes.client.utils.Serialization;
import io.fabric8.mockwebserver.Context;
import io.fabric8.mockwebserver.MockWebServer;
import io.fabric8.mockwebserver.http.MockResponse;
import io.fabric8.mockwebserver.http.RecordedRequest;

import java.io.IOException;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.logging.LogManager;
import java.util.stream.Collectors;

/**
 * A Kubernetes API server with a controller whose Pods are processes of this machine.
 *
 * <p>Usage: {@code KubernetesTestbed FOLDER CPUS}. Writes {@code FOLDER/kubeconfig} when it is
 * ready, and ends when the process gets SIGTERM. Contexts of the kubeconfig:
 *
 * <ul>
 *   <li>{@code admin} may do everything;
 *   <li>{@code expired} has a token that is refused;
 *   <li>{@code reader} may create nothing.
 * </ul>
 *
 * <p>A Pod starts if its processors are free (CPUS in all) and its image is not called {@code
 * missing}. Pods of the namespace {@code full} exceed a quota.
 */
public final class KubernetesTestbed {
    private static final Duration TICK = Duration.ofMillis(50);
    private static final String NO_IMAGE = "missing";
    private static final String FULL = "full";

    private final Path folder;
    private final BigDecimal processors;
    private final MockWebServer web = new MockWebServer();
    private final Map<String, Node> nodes = new LinkedHashMap<>();
    private final Set<String> made = new HashSet<>();
    private final Set<String> refused = new HashSet<>();

    /** A Pod, and the process that its container is. */
    private static final class Node {
        Pod pod;
        Process process;
        Path folder;
        Instant until;
        Instant killedFrom;
        boolean hasEnded;
    }

    private KubernetesTestbed(Path folder, BigDecimal processors) {
        this.folder = folder;
        this.processors = processors;
    }

    public static void main(String[] words) throws IOException, InterruptedException {
        // The mock logs every request.
        LogManager.getLogManager().reset();
        new KubernetesTestbed(Path.of(words[0]).toAbsolutePath(), new BigDecimal(words[1])).run();
    }

    private void run() throws IOException, InterruptedException {
        Context context = new Context(Serialization.jsonMapper());
        KubernetesMockServer server =
                new KubernetesMockServer(context, web, new HashMap<>(), new Guard(), true);
        server.init();
        Runtime.getRuntime().addShutdownHook(new Thread(this::endAll));
        writeKubeconfig(server.getPort());
        try (KubernetesClient client = server.createClient()) {
            while (true) {
                try {
                    tick(client);
                } catch (RuntimeException e) {
                    // An object may have been deleted in the meantime.
                    e.printStackTrace();
                }
                // It keeps all requests for the assertions of unit tests.
                web.reset();
                Thread.sleep(TICK.toMillis());
            }
        }
    }

    private void writeKubeconfig(int port) throws IOException {
        Path certificate = Path.of(web.getSelfSignedCertificate().certificatePath());
        String authority = Base64.getEncoder().encodeToString(Files.readAllBytes(certificate));
        StringBuilder text =
                new StringBuilder("apiVersion: v1\nkind: Config\ncurrent-context: admin\n");
        text.append("clusters:\n- name: testbed\n  cluster:\n    server: https://127.0.0.1:")
                .append(port);
        text.append("\n    certificate-authority-data: ").append(authority).append("\ncontexts:\n");
        for (String name : List.of("admin", "expired", "reader")) {
            text.append("- name: ")
                    .append(name)
                    .append("\n  context: {cluster: testbed, user: ")
                    .append(name);
            text.append(", namespace: work}\n");
        }
        text.append("users:\n");
        for (String name : List.of("admin", "expired", "reader")) {
            text.append("- name: ")
                    .append(name)
                    .append("\n  user: {token: ")
                    .append(name)
                    .append("}\n");
        }
        Path incomplete = folder.resolve("kubeconfig.new");
        Files.writeString(incomplete, text);
        Files.move(incomplete, folder.resolve("kubeconfig"));
    }

    // ---- the API server: what the mock does not do itself

    /** Authentication, permissions, dry runs and logs. */
    private final class Guard extends KubernetesCrudDispatcher {
        @Override
        public MockResponse dispatch(RecordedRequest request) {
            String path = request.getPath();
            String authorization =
                    Optional.ofNullable(request.getHeader("Authorization")).orElse("");
            if (authorization.equals("Bearer expired")) {
                return failure(401, "Unauthorized");
            }
            boolean isPost = request.getMethod().equals("POST");
            String[] parts = path.split("\\?")[0].split("/");
            if (authorization.equals("Bearer reader") && !request.getMethod().equals("GET")) {
                String message =
                        "%s is forbidden: User \"reader\" cannot %s resource \"%s\" in the"
                            + " namespace \"work\"";
                String resource = parts[isPost ? parts.length - 1 : parts.length - 2];
                return failure(
                        403,
                        String.format(message, resource, isPost ? "create" : "delete", resource));
            }
            if (path.contains("dryRun=All")) {
                return isPost ? answer(201, request.getUtf8Body()) : failure(404, "not found");
            }
            if (parts[parts.length - 1].equals("log")) {
                return log(parts[parts.length - 2]);
            }
            if (parts[parts.length - 1].equals("events") && !isPost) {
                // The mock knows few fields. All its events are of Jobs whose Pods could not be
                // made.
                return super.dispatch(
                        new RecordedRequest(
                                request.getHttpVersion(),
                                request.method(),
                                path.split("\\?")[0],
                                request.getHeaders(),
                                request.getBody()));
            }
            return super.dispatch(request);
        }

        private MockResponse log(String pod) {
            Path log = folder.resolve("pods").resolve(pod).resolve("log");
            try {
                return Files.exists(log)
                        ? answer(200, Files.readString(log))
                        : failure(404, "there is no Pod " + pod);
            } catch (IOException e) {
                return failure(500, e.toString());
            }
        }

        private MockResponse answer(int code, String body) {
            return new MockResponse().setResponseCode(code).setBody(body);
        }

        private MockResponse failure(int code, String message) {
            StatusBuilder status =
                    new StatusBuilder().withStatus("Failure").withCode(code).withMessage(message);
            return answer(code, Serialization.asJson(status.build()));
        }
    }

    // ---- the controller

    private void tick(KubernetesClient client) throws IOException {
        // The owners are listed last: an owner that is not among them was deleted.
        List<Secret> secrets = client.secrets().inAnyNamespace().list().getItems();
        Map<String, Pod> pods = byUid(client.pods().inAnyNamespace().list().getItems());
        Map<String, Job> jobs =
                byUid(client.batch().v1().jobs().inAnyNamespace().list().getItems());
        // What a deleted Job owned is deleted with it.
        for (Pod pod : pods.values()) {
            if (!jobs.containsKey(owner(pod))) {
                client.resource(pod).delete();
            }
        }
        for (Secret secret : secrets) {
            if (!jobs.containsKey(owner(secret))) {
                client.resource(secret).delete();
            }
        }
        for (Map.Entry<String, Node> entry : nodes.entrySet()) {
            Node node = entry.getValue();
            if (node.process != null && !pods.containsKey(entry.getKey())) {
                end(node);
            } else if (pods.containsKey(entry.getKey()) && !node.hasEnded) {
                step(client, node, secrets);
            }
        }
        nodes.values()
                .removeIf(
                        node ->
                                !pods.containsKey(node.pod.getMetadata().getUid())
                                        && (node.process == null || !node.process.isAlive()));
        // After the others: their Pods are not listed yet.
        for (Job job : jobs.values()) {
            close(client, job);
            makePods(client, job);
        }
    }

    private static <T extends HasMetadata> Map<String, T> byUid(List<T> objects) {
        return objects.stream()
                .collect(Collectors.toMap(one -> one.getMetadata().getUid(), one -> one));
    }

    private static String owner(HasMetadata object) {
        return object.getMetadata().getOwnerReferences().get(0).getUid();
    }

    private void makePods(KubernetesClient client, Job job) {
        String name = job.getMetadata().getName();
        String namespace = job.getMetadata().getNamespace();
        if (namespace.equals(FULL)) {
            if (refused.add(job.getMetadata().getUid())) {
                client.resource(
                                new EventBuilder()
                                        .withNewMetadata()
                                        .withName(name)
                                        .withNamespace(namespace)
                                        .endMetadata()
                                        .withNewInvolvedObject()
                                        .withKind("Job")
                                        .withName(name)
                                        .endInvolvedObject()
                                        .withReason("FailedCreate")
                                        .withMessage(
                                                "pods \""
                                                        + name
                                                        + "\" is forbidden: exceeded quota: small")
                                        .build())
                        .create();
            }
            return;
        }
        for (int index = 0; index < job.getSpec().getCompletions(); index++) {
            if (!made.add(job.getMetadata().getUid() + "/" + index)) {
                continue;
            }
            Map<String, String> labels =
                    new HashMap<>(job.getSpec().getTemplate().getMetadata().getLabels());
            labels.put("job-name", name);
            labels.put("batch.kubernetes.io/job-name", name);
            labels.put("batch.kubernetes.io/job-completion-index", Integer.toString(index));
            Node node = new Node();
            node.pod =
                    client.resource(
                                    new PodBuilder()
                                            .withNewMetadata()
                                            .withName(name + "-" + index)
                                            .withNamespace(namespace)
                                            .withLabels(labels)
                                            .addNewOwnerReference()
                                            .withKind("Job")
                                            .withName(name)
                                            .withUid(job.getMetadata().getUid())
                                            .endOwnerReference()
                                            .endMetadata()
                                            .withSpec(job.getSpec().getTemplate().getSpec())
                                            .withNewStatus()
                                            .withPhase("Pending")
                                            .endStatus()
                                            .build())
                            .create();
            nodes.put(node.pod.getMetadata().getUid(), node);
        }
    }

    /** Writes the condition of a Job that has ended. */
    private void close(KubernetesClient client, Job job) {
        boolean isOpen = job.getStatus() == null || job.getStatus().getConditions().isEmpty();
        String uid = job.getMetadata().getUid();
        List<Pod> own =
                client.pods()
                        .inNamespace(job.getMetadata().getNamespace())
                        .withLabel("job-name", job.getMetadata().getName())
                        .list()
                        .getItems();
        int wanted = job.getSpec().getCompletions();
        if (!isOpen || !made.contains(uid + "/" + (wanted - 1))) {
            return;
        }
        long succeeded = own.stream().filter(pod -> phase(pod).equals("Succeeded")).count();
        // A Pod that is gone has failed.
        long failed = wanted - own.stream().filter(pod -> !phase(pod).equals("Failed")).count();
        if (succeeded + failed < wanted && !(failed > 0 && wanted == 1)) {
            return;
        }
        String namespace = job.getMetadata().getNamespace();
        client.batch()
                .v1()
                .jobs()
                .inNamespace(namespace)
                .withName(job.getMetadata().getName())
                .editStatus(
                        one -> {
                            one.setStatus(
                                    new io.fabric8.kubernetes.api.model.batch.v1.JobStatusBuilder()
                                            .withSucceeded((int) succeeded)
                                            .withFailed((int) failed)
                                            .addNewCondition()
                                            .withType(failed > 0 ? "Failed" : "Complete")
                                            .withStatus("True")
                                            .withReason(
                                                    failed > 0
                                                            ? "BackoffLimitExceeded"
                                                            : "CompletionsReached")
                                            .withMessage(
                                                    failed > 0
                                                            ? "Job has reached the specified"
                                                                  + " backoff limit"
                                                            : "")
                                            .endCondition()
                                            .build());
                            return one;
                        });
    }

    private static String phase(Pod pod) {
        return Optional.ofNullable(pod.getStatus()).map(PodStatus::getPhase).orElse("");
    }

    /** What a scheduler and a kubelet do for a Pod. */
    private void step(KubernetesClient client, Node node, List<Secret> secrets) throws IOException {
        if (node.process == null) {
            start(client, node, secrets);
        } else if (!node.process.isAlive()) {
            int code = node.process.exitValue();
            node.hasEnded = true;
            boolean isLate = node.until != null && !Instant.now().isBefore(node.until);
            set(
                    client,
                    node,
                    new PodStatusBuilder()
                            .withPhase(code == 0 && !isLate ? "Succeeded" : "Failed")
                            .withReason(isLate ? "DeadlineExceeded" : null)
                            .addToContainerStatuses(
                                    new ContainerStatusBuilder()
                                            .withName("eyas")
                                            .withState(
                                                    new ContainerStateBuilder()
                                                            .withNewTerminated()
                                                            .withReason(
                                                                    code == 0
                                                                            ? "Completed"
                                                                            : "Error")
                                                            .withExitCode(code)
                                                            .endTerminated()
                                                            .build())
                                            .build())
                            .build());
        } else if (node.until != null && !Instant.now().isBefore(node.until)) {
            end(node);
        }
    }

    private void start(KubernetesClient client, Node node, List<Secret> secrets)
            throws IOException {
        var spec = node.pod.getSpec();
        var container =
                spec.getContainers().stream()
                        .filter(one -> one.getName().equals("eyas"))
                        .findFirst()
                        .get();
        if (container.getImage().startsWith(NO_IMAGE)) {
            set(
                    client,
                    node,
                    placed("Pending")
                            .addToContainerStatuses(
                                    new ContainerStatusBuilder()
                                            .withName("eyas")
                                            .withState(
                                                    new ContainerStateBuilder()
                                                            .withNewWaiting()
                                                            .withReason("ImagePullBackOff")
                                                            .withMessage(
                                                                    "Back-off pulling image \""
                                                                            + container.getImage()
                                                                            + "\"")
                                                            .endWaiting()
                                                            .build())
                                            .build())
                            .build());
            return;
        }
        BigDecimal used =
                nodes.values().stream()
                        .filter(one -> one.process != null && one.process.isAlive())
                        .map(KubernetesTestbed::processorsOf)
                        .reduce(BigDecimal.ZERO, BigDecimal::add);
        if (used.add(processorsOf(node)).compareTo(processors) > 0) {
            set(
                    client,
                    node,
                    new PodStatusBuilder()
                            .withPhase("Pending")
                            .addToConditions(
                                    new PodConditionBuilder()
                                            .withType("PodScheduled")
                                            .withStatus("False")
                                            .withReason("Unschedulable")
                                            .withMessage(
                                                    "0/1 nodes are available: 1 Insufficient cpu.")
                                            .build())
                            .build());
            return;
        }
        node.folder = folder.resolve("pods").resolve(node.pod.getMetadata().getName());
        // Paths of the Pod, and the folders of this machine that they are.
        Map<String, String> paths = new HashMap<>();
        for (Volume volume : spec.getVolumes()) {
            Path place = node.folder.resolve("volumes").resolve(volume.getName());
            container.getVolumeMounts().stream()
                    .filter(mount -> mount.getName().equals(volume.getName()))
                    .forEach(mount -> paths.put(mount.getMountPath(), place.toString()));
            Files.createDirectories(place);
        }
        for (Volume volume : spec.getVolumes()) {
            if (volume.getSecret() == null) {
                continue;
            }
            var secret =
                    secrets.stream()
                            .filter(one -> is(one, node, volume.getSecret().getSecretName()))
                            .findFirst();
            if (secret.isEmpty()) {
                set(client, node, placed("Pending").build());
                return;
            }
            Path place = node.folder.resolve("volumes").resolve(volume.getName());
            writeFiles(secret.get(), place, paths);
        }
        List<String> command =
                container.getCommand().stream().map(word -> onThisMachine(word, paths)).toList();
        ProcessBuilder builder = new ProcessBuilder("setsid");
        builder.command().addAll(command);
        builder.environment().put("JOB_COMPLETION_INDEX", index(node.pod));
        container.getEnv().forEach(one -> builder.environment().put(one.getName(), one.getValue()));
        builder.redirectErrorStream(true).redirectOutput(node.folder.resolve("log").toFile());
        node.process = builder.start();
        node.process.getOutputStream().close();
        Long limit = spec.getActiveDeadlineSeconds();
        node.until = limit == null ? null : Instant.now().plusSeconds(limit);
        set(
                client,
                node,
                placed("Running")
                        .addToContainerStatuses(
                                new ContainerStatusBuilder()
                                        .withName("eyas")
                                        .withReady(true)
                                        .withState(
                                                new ContainerStateBuilder()
                                                        .withNewRunning()
                                                        .endRunning()
                                                        .build())
                                        .build())
                        .build());
    }

    private static boolean is(Secret secret, Node node, String name) {
        return secret.getMetadata().getName().equals(name)
                && secret.getMetadata()
                        .getNamespace()
                        .equals(node.pod.getMetadata().getNamespace());
    }

    private static void writeFiles(Secret secret, Path place, Map<String, String> paths)
            throws IOException {
        Map<String, String> files = new HashMap<>();
        Optional.ofNullable(secret.getStringData()).ifPresent(files::putAll);
        Optional.ofNullable(secret.getData())
                .ifPresent(
                        data ->
                                data.forEach(
                                        (name, content) ->
                                                files.put(
                                                        name,
                                                        new String(
                                                                Base64.getDecoder().decode(content),
                                                                StandardCharsets.UTF_8))));
        for (Map.Entry<String, String> file : files.entrySet()) {
            Path path = place.resolve(file.getKey());
            Files.deleteIfExists(path);
            Files.writeString(path, onThisMachine(file.getValue(), paths));
            Files.setPosixFilePermissions(
                    path, java.nio.file.attribute.PosixFilePermissions.fromString("r--------"));
        }
    }

    private static String onThisMachine(String text, Map<String, String> paths) {
        String found = text;
        for (Map.Entry<String, String> path : paths.entrySet()) {
            found = found.replace(path.getKey(), path.getValue());
        }
        return found;
    }

    private static BigDecimal processorsOf(Node node) {
        return node.pod.getSpec().getContainers().stream()
                .map(
                        container ->
                                Optional.ofNullable(container.getResources().getRequests())
                                        .orElse(Map.of()))
                .map(
                        requests ->
                                requests.getOrDefault("cpu", new Quantity("0"))
                                        .getNumericalAmount())
                .reduce(BigDecimal.ZERO, BigDecimal::add);
    }

    private static String index(Pod pod) {
        return pod.getMetadata().getLabels().get("batch.kubernetes.io/job-completion-index");
    }

    private static PodStatusBuilder placed(String phase) {
        return new PodStatusBuilder()
                .withPhase(phase)
                .addToConditions(
                        new PodConditionBuilder()
                                .withType("PodScheduled")
                                .withStatus("True")
                                .build());
    }

    /** Writes the status of a Pod, if it has changed. */
    private static void set(KubernetesClient client, Node node, PodStatus status) {
        if (!status.equals(node.pod.getStatus())) {
            node.pod.setStatus(status);
            String namespace = node.pod.getMetadata().getNamespace();
            client.pods()
                    .inNamespace(namespace)
                    .withName(node.pod.getMetadata().getName())
                    .editStatus(
                            one -> {
                                one.setStatus(status);
                                return one;
                            });
        }
    }

    /** SIGTERM; after the grace period, SIGKILL to all processes of the container. */
    private static void end(Node node) {
        if (node.killedFrom == null) {
            node.process.destroy();
            Long grace = node.pod.getSpec().getTerminationGracePeriodSeconds();
            node.killedFrom = Instant.now().plusSeconds(grace == null ? 30 : grace);
        } else if (Instant.now().isAfter(node.killedFrom)) {
            node.process.descendants().forEach(ProcessHandle::destroyForcibly);
            node.process.destroyForcibly();
        }
    }

    private void endAll() {
        List<Process> processes =
                nodes.values().stream()
                        .map(node -> node.process)
                        .filter(one -> one != null)
                        .toList();
        processes.forEach(Process::destroy);
        for (Process process : processes) {
            try {
                if (!process.waitFor(5, TimeUnit.SECONDS)) {
                    process.descendants().forEach(ProcessHandle::destroyForcibly);
                    process.destroyForcibly();
                }
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
