package io.eyas.hadoop.mapreduce;

import io.eyas.EyasRun;

import java.util.List;

/**
 * The input of a job over elastic blocks.
 *
 * @param run the run, which does not become idle while this object is open; null if no file is
 *     divided into pieces
 * @param splits the tasks of the run; none if all files are empty
 */
public record ElasticInput(EyasRun run, List<ElasticSplit> splits) {}
