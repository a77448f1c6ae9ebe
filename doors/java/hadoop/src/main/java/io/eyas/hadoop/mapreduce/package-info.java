/**
 * MapReduce over elastic blocks: map tasks claim pieces of files while they run, so that fast nodes
 * read more than slow ones.
 */
package io.eyas.hadoop.mapreduce;
